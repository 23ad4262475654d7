"""Counters of the switches of a lab's scale-up domains, by GPU, plane and virtual channel, and the laws that hold them
together.

`names` has the counters with the names that operators know them by, `reading` reads them from the switches, `balance`
holds them against each other, and `metrics` puts them into OpenMetrics.
"""
