"""One lab over several machines (experimental): each has some of its nodes, and the links between these.

The plan is that of the whole lab, on each machine the same: the addresses, the numbers of ports, the MACs. A machine
makes the part of it that it has (`part`). A link whose ends are on two machines is cut: at each machine it is a veth
from the node to a stub in a namespace of its own, and what comes out of the stub is redirected by eBPF into a VXLAN
device for this link alone, and so the other way round (`wires`). That passes every frame, PFC's among them, which
bridges and macvlan keep back (IEEE 802.1Q, 8.6.3). The packet leaves its queue's account at the stub, as it does at the
far end of a veth, so queues, buffers and pauses are where they are in a lab on one machine.

A VXLAN device has carrier whatever happens at the other end. So a process (`testbed.daemons.wires`) tells the other
machines which ports are down, and that it is alive; a port whose far end is down, or on a machine that is silent, loses
its carrier.

Who has which node is decided in `places`. `testbed.api.pool.over`, which knows SSH, brings the machines together.
"""
