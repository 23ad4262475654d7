"""Every transport on a lab by its name: a module of this package that has the name (nvme_tcp is nvme-tcp), and
a `TRANSPORT`.

The names are those that `testbed.run.schema.transports` declares; nothing here has to be told of another.
"""

from __future__ import annotations

from importlib import import_module

from testbed.lab.core.model import AdaptPer, BalancingMode
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TransportKind
from testbed.run.transports.lab_transport import LabTransport, PathChoice

SINGLE_PATH = frozenset({BalancingMode.FLOW, BalancingMode.STATIC})
"""The modes by which a switch gives all packets of a flow one path."""


def transport_class(kind: TransportKind) -> type[LabTransport]:
    """Return what this kind of transport is on any lab."""
    found: type[LabTransport] = import_module(f"testbed.run.transports.{kind.value.replace('-', '_')}").TRANSPORT
    return found


def transport_on(lab: LiveLab, transport: Transport) -> LabTransport:
    """Return a scenario's transport on a lab. Raises `ScenarioError` where they do not fit together."""
    return transport_class(transport.kind)(lab, transport)


def path_choice(transport: Transport, lab: LiveLab) -> PathChoice | None:
    """Return how packets of a flow choose among paths, by the switches and the transport; None: no oracle for it."""
    switches = [buffer for buffer in lab.plan.qos.buffers if buffer.node] if lab.plan.qos else []
    modes = {buffer.mode for buffer in switches} or {BalancingMode.FLOW}
    if modes == {BalancingMode.SPRAY}:
        return PathChoice.OBLIVIOUS
    if modes == {BalancingMode.ADAPTIVE}:
        by_packet = all(buffer.per is AdaptPer.PACKET and not buffer.hysteresis_bytes for buffer in switches)
        return PathChoice.ADAPTIVE if by_packet else None
    if modes == {BalancingMode.STATIC}:
        return PathChoice.HASHED  # whatever ports a packet has
    chosen = transport_on(lab, transport).path_choice
    if chosen in (PathChoice.REPATHED, PathChoice.ROUTED):
        return None
    if modes == {BalancingMode.FLOW} or (modes <= SINGLE_PATH and chosen is PathChoice.HASHED):
        return chosen
    return None
