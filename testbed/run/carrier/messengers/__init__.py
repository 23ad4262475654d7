"""Messengers: the endpoint of a NIC as the carrier uses it, whatever its transport."""
