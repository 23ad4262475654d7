"""The services of the management network: what each runs on a node, with which files, user and capabilities.

A service is a module here, an entry of `registry`, its place in `testbed.lab.core.model.management` and its key in
the topology file. Starting, asking and ending are the same for all (`launcher`, `asking`); when, and for which lab,
is for `testbed.lab.core.deploy` to say.
"""
