"""The switch of a scale-up domain: a process of its own, in the namespace that all links of the domain end in.

`process` is what runs there (`python -m testbed.daemons.switchd`), `client` what starts it, asks it and ends it, and
`description` what it is told. `ends` notices the death of a GPU's process, and `guardian` tells of the switch's own.
The switching itself is C (`testbed.protocols.scale_up.domain`).
"""
