"""Transport protocol cores without I/O: bytes and `now` in; datagrams, events and the next timer out.

Nothing in here opens a socket, reads a clock or draws a random number of its own accord, and nothing in here imports
the rest of testbed: it ships into a host (`testbed.agent`) and runs under a fake clock
(`testbed.transport.simulation`).
"""
