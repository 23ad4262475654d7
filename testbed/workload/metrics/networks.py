"""Metrics of one network of a lab, or of one tenant of the topology in it, whether or not the workload was there.

Who names such a metric says of which network (`catalogue.Selection`). All ports of the network are meant, those of
hosts and of switches; of a tenant those at both ends of the links to its NICs, which it shares with nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.base.metric import Better, MetricFamily, MetricUnit, as_measured, known
from testbed.workload.metrics.run_samples import NetworkCarried
from testbed.workload.metrics.sources import DRAFT, PAUSE

NETWORKS = MetricFamily()


def _declare(  # noqa: PLR0913  # what a metric has
    name: str,
    title: str,
    unit: MetricUnit,
    formula: str,
    source: str,
    read: Callable[[NetworkCarried], float | None],
    better: Better = Better.NEITHER,
    *,
    ideal: float | None = None,
) -> None:
    NETWORKS.metric(
        name=f"network_{name}",
        title=title,
        unit=unit,
        better=better,
        by_network=True,
        formula=formula,
        source=source,
        takes=lambda run: (known(read(run[NetworkCarried])),),
        ideal=ideal,
    )(as_measured)


_declare(
    "entered",
    "Bytes into the network",
    MetricUnit.BYTES,
    "bytes of frames that hosts, targets, servers and managed nodes sent into it, control traffic included",
    "RFC 2863, ifHCOutOctets of their ports",
    lambda one: one.entered_bytes,
)
_declare(
    "delivered",
    "Bytes out of the network",
    MetricUnit.BYTES,
    "bytes of frames that its switches sent to hosts, targets, servers and managed nodes",
    "RFC 2863, ifHCOutOctets of the switches' ports",
    lambda one: one.delivered_bytes,
)
_declare(
    "utilisation",
    "Utilisation of the network",
    MetricUnit.SHARE,
    "8 * bytes sent by all ports / (t * sum of their line rates)",
    DRAFT,
    lambda one: one.utilisation,
)
_declare(
    "peak_utilisation",
    "Peak utilisation of the network",
    MetricUnit.SHARE,
    "the highest utilisation of all ports together in a window of 0.1 s; of networks with QoS alone",
    DRAFT,
    lambda one: one.peak_utilisation,
)
_declare(
    "busiest_utilisation",
    "Utilisation of its busiest port",
    MetricUnit.SHARE,
    "the largest 8 * bytes sent / (t * line rate) of a port",
    DRAFT,
    lambda one: one.busiest_utilisation,
)
_declare(
    "queue_max",
    "Deepest queue of the network",
    MetricUnit.BYTES,
    "the deepest that a queue of a port was, at hosts and switches; of networks with QoS alone",
    DRAFT,
    lambda one: one.queue_max_bytes,
    Better.LESS,
)
_declare(
    "drops",
    "Packets lost in the network",
    MetricUnit.COUNT,
    "packets that queues and interfaces dropped, wires lost and caps stopped, at hosts and switches",
    "RFC 2544 section 26.3 for the term",
    lambda one: one.dropped_packets,
    Better.LESS,
    ideal=0.0,
)
_declare(
    "guarded",
    "Packets guarded against",
    MetricUnit.COUNT,
    "packets that guards, policies between tenants, borders and managed nodes did not let in",
    "RFC 7039 for guards of access ports",
    lambda one: one.guarded_packets,
)
_declare(
    "ce_packets",
    "ECN marks in the network",
    MetricUnit.COUNT,
    "packets that queues marked CE; of networks with QoS alone",
    "RFC 3168",
    lambda one: one.ce_packets,
    Better.LESS,
)
_declare(
    "pause_frames",
    "Pause events in the network",
    MetricUnit.COUNT,
    "pause frames with non-zero quanta that ports sent; of networks with QoS alone",
    PAUSE,
    lambda one: one.pause_frames,
    Better.LESS,
)
