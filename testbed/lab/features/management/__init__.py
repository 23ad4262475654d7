"""The out-of-band network: management ports, the server behind them, and its services."""
