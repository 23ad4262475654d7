"""Topologies of other tools: files of containerlab and netlab are read, and a lab is written as one of theirs.

What such a file says is gathered by the reader of its tool (`containerlab`, `netlab`) as an `ImportedLab`, in our words
and with a remark for everything that is not as it was; `roles` decides the tiers of its switches, and `topology_text`
writes a topology file of ours. The other way, a lab and its plan become a file of theirs (`containerlab_file`,
`netlab_file`). A file of theirs never becomes a `Lab` by itself: what users deploy is a file that they read and edit.
"""
