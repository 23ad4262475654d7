"""gNMI of a lab's switches: what OpenConfig has of their interfaces, queues and BGP, to be read and not to be set.

Every switch is a target of its own at its address of management; one process serves all of them (`process`). `paths`
are those of gNMI without its messages, `tree` has the leaves of a switch, made of what `readings` read, and `values`
the JSON of a part of it. `subscriptions` decides what a subscriber gets when, and does no I/O; `service` speaks gRPC,
whose messages are those of the library pygnmi.
"""
