"""Every transport on a lab by its name: a module of this package that has the name (nvme_tcp is nvme-tcp), and
a `TRANSPORT`.

The names are those that `testbed.run.schema.transports` declares; nothing here has to be told of another.
"""

from __future__ import annotations

from importlib import import_module

from testbed.lab.core.model import BalancingMode
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TransportKind
from testbed.run.transports.lab_transport import LabTransport, PathChoice


def transport_class(kind: TransportKind) -> type[LabTransport]:
    """Return what this kind of transport is on any lab."""
    found: type[LabTransport] = import_module(f"testbed.run.transports.{kind.value.replace('-', '_')}").TRANSPORT
    return found


def transport_on(lab: LiveLab, transport: Transport) -> LabTransport:
    """Return a scenario's transport on a lab. Raises `ScenarioError` where they do not fit together."""
    return transport_class(transport.kind)(lab, transport)


def path_choice(transport: Transport, lab: LiveLab) -> PathChoice | None:
    """Return how packets of a flow choose among paths, by the switches and the transport; None: no oracle for it."""
    modes = {buffer.mode for buffer in lab.plan.qos.buffers if buffer.node} if lab.plan.qos else {BalancingMode.FLOW}
    if modes == {BalancingMode.SPRAY}:
        return PathChoice.OBLIVIOUS
    if modes != {BalancingMode.FLOW}:
        return None
    return transport_on(lab, transport).path_choice
