"""Measuring programs of others as parts of a run: iperf3 and perftest, and what they report."""
