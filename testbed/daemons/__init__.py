"""The processes that a lab has beside those of FRR: each is started from a configuration, and ends with its lab.

portd pauses (PFC), lag aggregates links, keeper keeps the overlay whole, switchd switches in scale-up domains.
"""
