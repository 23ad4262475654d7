"""What has to be installed for testbed to work, and how `./lab` installs it.

The standard library is enough for everything in here: `./lab` runs it before there is an environment.
"""
