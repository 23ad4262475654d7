"""The end of libfabric's provider `uet` that has the endpoints: programs of a lab's hosts send messages and reach each
other's memory over our UET, and know nothing of it but libfabric.

The provider (`testbed/native/libfabric`, in C) is loaded into a program. Its domains are connections of a Unix socket,
one for each host; what they say is in `wire`. A connection (`connection`) has a PIDonFEP of its own at the endpoint of
a rail, its endpoints are resource indices, and its bytes never go through the socket unless they are few: they are
copied from and to the memory of the program (`program_memory`), which is how peers reach registered memory, too.

Nothing that a connection says is believed. What is malformed, or more than it may have under way, ends it; the end of a
program frees all that it had.
"""
