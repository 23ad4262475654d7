"""TCP without I/O, as Linux has it: segments and `now` go in; segments, and when to be asked again, come out.

A `TcpStack` is a host's TCP at one address. It has connections, each with a half that sends (`sender`) and one that
receives (`receiver`); `connection` has the states of RFC 9293 and joins the two. What is sent and not yet acknowledged
is a row of `SentSegment` (`flight`), of which the loss detection (`rack`: RFC 8985, on top of the selective
acknowledgements of RFC 2018 and RFC 6675) says which are lost. `recovery` has the states of the window (Open,
Disorder, CWR, LossRecovery and Loss) with proportional rate reduction (RFC 6937), F-RTO (RFC 5682) and the undoing of
reductions that were a mistake (RFC 3522); `congestion` says how the window grows and by how much it shrinks. Time-outs
are those of RFC 6298 with Linux's floor of 200 ms (`rto`).

Nothing is copied from Linux but its numbers; where it differs from the RFCs it is followed, since flows of an emulated
lab are its own (net/ipv4/tcp_input.c, tcp_output.c, tcp_recovery.c, tcp_cubic.c, tcp_dctcp.c). What it does to spare
CPU time (offloads, compressed acknowledgements, small queues) is left out.
"""
