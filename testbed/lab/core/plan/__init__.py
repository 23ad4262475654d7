"""Pure decisions: addresses, AS numbers, MACs, rates, and the operations that realise them."""
