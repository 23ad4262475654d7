"""Metrics of one network of a lab, or of one tenant of the topology in it, whether or not the workload was there.

Who names such a metric says of which network (`selection`). All ports of the network are meant, those of hosts and of
switches; of a tenant those at both ends of the links to its NICs, which it shares with nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from testbed.workload.metrics.metric import Better, Metric, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import NetworkCarried, NotMeasured
from testbed.workload.metrics.sources import DRAFT, PAUSE

NETWORKS = MetricFamily()


def _known(read: Callable[[NetworkCarried], float | None], carried: NetworkCarried) -> float:
    """Raises `NotMeasured` where nobody watched it."""
    value = read(carried)
    if value is None:
        raise NotMeasured(NetworkCarried.__name__)
    return value


def network_entered(sent_bytes: Sequence[float]) -> float | None:
    """The bytes of all frames that hosts, targets and servers sent into a network."""
    return math.fsum(sent_bytes)


NETWORKS.add(
    Metric(
        compute=network_entered,
        title="Bytes into the network",
        unit=MetricUnit.BYTES,
        better=Better.NEITHER,
        by_network=True,
        formula="bytes of frames that hosts, targets, servers and managed nodes sent into it, control traffic included",
        source="RFC 2863, ifHCOutOctets of their ports",
        measure=lambda run: run[NetworkCarried].entered_bytes,
    )
)


def network_delivered(sent_bytes: Sequence[float]) -> float | None:
    """The bytes of all frames that switches sent to hosts, targets and servers."""
    return math.fsum(sent_bytes)


NETWORKS.add(
    Metric(
        compute=network_delivered,
        title="Bytes out of the network",
        unit=MetricUnit.BYTES,
        better=Better.NEITHER,
        by_network=True,
        formula="bytes of frames that its switches sent to hosts, targets, servers and managed nodes",
        source="RFC 2863, ifHCOutOctets of the switches' ports",
        measure=lambda run: run[NetworkCarried].delivered_bytes,
    )
)


def network_utilisation(sent_bytes: Sequence[float], time_s: float, rate_bps: Sequence[float]) -> float | None:
    """The bits that all ports sent over what they all can send in that time."""
    capacity = time_s * math.fsum(rate_bps)
    return 8 * math.fsum(sent_bytes) / capacity if capacity > 0 else None


NETWORKS.add(
    Metric(
        compute=network_utilisation,
        title="Utilisation of the network",
        unit=MetricUnit.SHARE,
        better=Better.NEITHER,
        by_network=True,
        formula="8 * bytes sent by all ports / (t * sum of their line rates)",
        source=DRAFT,
        measure=lambda run: run[NetworkCarried].utilisation,
    )
)


def network_peak_utilisation(window_utilisation: Sequence[float]) -> float | None:
    """The highest utilisation of all ports together in a window of 0.1 s."""
    return max(window_utilisation, default=None)


NETWORKS.add(
    Metric(
        compute=network_peak_utilisation,
        title="Peak utilisation of the network",
        unit=MetricUnit.SHARE,
        better=Better.NEITHER,
        by_network=True,
        formula="the highest utilisation of all ports together in a window of 0.1 s; of networks with QoS alone",
        source=DRAFT,
        measure=lambda run: _known(lambda one: one.peak_utilisation, run[NetworkCarried]),
    )
)


def network_busiest_utilisation(utilisation: Sequence[float]) -> float | None:
    """The utilisation of the busiest port."""
    return max(utilisation, default=None)


NETWORKS.add(
    Metric(
        compute=network_busiest_utilisation,
        title="Utilisation of its busiest port",
        unit=MetricUnit.SHARE,
        better=Better.NEITHER,
        by_network=True,
        formula="the largest 8 * bytes sent / (t * line rate) of a port",
        source=DRAFT,
        measure=lambda run: run[NetworkCarried].busiest_utilisation,
    )
)


def network_queue_max(depth_bytes: Sequence[float]) -> float | None:
    """The deepest that a queue was."""
    return max(depth_bytes, default=None)


NETWORKS.add(
    Metric(
        compute=network_queue_max,
        title="Deepest queue of the network",
        unit=MetricUnit.BYTES,
        better=Better.LESS,
        by_network=True,
        formula="the deepest that a queue of a port was, at hosts and switches; of networks with QoS alone",
        source=DRAFT,
        measure=lambda run: _known(lambda one: one.queue_max_bytes, run[NetworkCarried]),
    )
)


def network_drops(packets_by_port: Sequence[float]) -> float | None:
    """The packets lost at all ports."""
    return math.fsum(packets_by_port)


NETWORKS.add(
    Metric(
        compute=network_drops,
        title="Packets lost in the network",
        unit=MetricUnit.COUNT,
        better=Better.LESS,
        by_network=True,
        ideal=0.0,
        formula="packets that queues and interfaces dropped, wires lost and caps stopped, at hosts and switches",
        source="RFC 2544 section 26.3 for the term",
        measure=lambda run: run[NetworkCarried].dropped_packets,
    )
)


def network_guarded(packets_by_guard: Sequence[float]) -> float | None:
    """The packets that were not let in."""
    return math.fsum(packets_by_guard)


NETWORKS.add(
    Metric(
        compute=network_guarded,
        title="Packets guarded against",
        unit=MetricUnit.COUNT,
        better=Better.NEITHER,
        by_network=True,
        formula="packets that guards, policies between tenants, borders and managed nodes did not let in",
        source="RFC 7039 for guards of access ports",
        measure=lambda run: _known(lambda one: one.guarded_packets, run[NetworkCarried]),
    )
)


def network_ce_packets(packets_by_queue: Sequence[float]) -> float | None:
    """The packets that queues marked."""
    return math.fsum(packets_by_queue)


NETWORKS.add(
    Metric(
        compute=network_ce_packets,
        title="ECN marks in the network",
        unit=MetricUnit.COUNT,
        better=Better.LESS,
        by_network=True,
        formula="packets that queues marked CE; of networks with QoS alone",
        source="RFC 3168",
        measure=lambda run: _known(lambda one: one.ce_packets, run[NetworkCarried]),
    )
)


def network_pause_frames(frames_by_port: Sequence[float]) -> float | None:
    """The pause frames that ports sent."""
    return math.fsum(frames_by_port)


NETWORKS.add(
    Metric(
        compute=network_pause_frames,
        title="Pause events in the network",
        unit=MetricUnit.COUNT,
        better=Better.LESS,
        by_network=True,
        formula="pause frames with non-zero quanta that ports sent; of networks with QoS alone",
        source=PAUSE,
        measure=lambda run: _known(lambda one: one.pause_frames, run[NetworkCarried]),
    )
)
