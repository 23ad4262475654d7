"""What the switches of a lab's scale-up domains count, by GPU, plane and virtual channel, and whether it adds up.

`names` has the counters with the names that operators know them by, `reading` reads them from the switches, `balance`
holds them against each other, and `metrics` puts them into OpenMetrics.
"""
