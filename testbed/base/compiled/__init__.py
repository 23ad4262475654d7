"""The modules that are in the way of a packet, compiled to C by mypyc, and how they come to be imported.

The source stays Python: what is compiled is the same files, and `TESTBED_PURE=1` runs them interpreted. A build lives
in the user's cache, under a key made of the sources, the interpreter and the way of building, so that a changed file is
never run in an old version: without a build that fits, modules are interpreted.
"""
