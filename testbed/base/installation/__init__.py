"""The packages and the Python environment that testbed needs, and `./lab`, which installs them.

The standard library is enough for everything in here: `./lab` runs it before there is an environment.
"""
