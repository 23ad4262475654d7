"""Carrying out a change of a lab that is up, part by part: its data path, addresses, routing and transit."""
