"""Transport protocol cores without I/O: bytes and `now` in; datagrams, events and the next timer out.

Nothing in here opens a socket, reads a clock or draws a random number of its own accord, and nothing in here imports
the rest of testbed: it ships into a host (`testbed.endpoints`) and runs under a fake clock
(`testbed.protocols.simulation`).
"""


def is_compiled() -> bool:
    """Tell whether the modules that are in the way of a packet run compiled in this process."""
    from testbed.protocols import datagram

    return not (datagram.__file__ or ".py").endswith(".py")
