"""A scale-up domain: GPUs that reach each other's memory over switches.

Both ends of each link and what is between them are C (`native/`), for a frame may take some microseconds. `binding` has
the structures and functions; `link` says what a link is like; `endpoint` is a GPU's end, which a worker drives;
`switch_core` is the switch without its process, for tests in virtual time. The process itself is
`testbed.daemons.switchd`.
"""
