"""The carrier of links that are cut between machines, one process for each lab on each of them.

The two halves of such a link have their carriers from stubs in a namespace of their machine, and each half would keep
it whatever becomes of the other. So each process listens to the kernel for whether the ports of cut links are up, and
tells the others 20 times a second, and at once when it changes; its message lists the links whose port is down here
(`beats`). A stub is up while the port at the far end is, and while that machine was heard within half a second: a
machine that is switched off takes its links down everywhere, and the lab's events say so.
"""
