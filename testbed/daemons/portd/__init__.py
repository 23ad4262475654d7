"""The pause agent, one process per machine: queue depths become 802.1Qbb frames, frames close gates."""
