"""sFlow version 5 of a lab's switches: packets that they send, one in so many, packets that they drop, and counters.

Every switch is an agent, whose address is that of its management port, and sends its own datagrams from there. One
process has the agents of all (`process`). It is told which ports there are by a file (`configuration`), and reads what
the eBPF data path samples (`samples`), which knows the depth of the queue and why a packet was dropped; ports without a
queue of the data path are sampled by packet sockets (`taps`). `datagram` has the format, and does no I/O; `agent` puts
the samples of one switch together.
"""
