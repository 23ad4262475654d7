"""Faults of a lab while its traffic runs: a class for each kind of fault, and the timeline that does them.

`lab_fault` says what a fault is (check, do, undo, what it may lose), `registry` which kinds there are, `timeline` does
those of a run on time and undoes them, and hears what the lab says of itself meanwhile.
"""
