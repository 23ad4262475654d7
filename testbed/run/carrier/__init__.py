"""The carrier: TCP of any program between hosts of a lab goes as messages of UET or RoCE, unseen by both programs.

A program connects to another host as ever. In its host's network namespace a rule and a route lead the connection back
into the namespace (`lab.core.plan.operations.SteerTcp`), where an eBPF program (`steering`) hands it to a listener of
ours, whose socket has the address that the program asked for. What the program writes goes as messages (`frames`) from
the NIC's endpoint to that of the other host's (`messengers`). There a socket that is bound to the first program's own
address and port connects to whoever listens. So both programs see each other's true addresses.

`protocol` is one connection at one end, without I/O: what may be read, what is to be written, and what is told the
other end. `gateway` has the sockets of the hosts that one process works for, `__main__` is that process, and `carrying`
starts the processes of a lab, steers, and undoes it all.
"""
