"""The ports' counters as OpenMetrics 1.0 text, for Prometheus and whatever else reads it.

A collector of the prometheus-client library: each scrape opens the labs that are there, reads their maps once and lets
go of them again, so that a lab that is destroyed meanwhile is held by nobody. Queues that saw nothing are left out: a
lab of 1,024 NICs has 7,680, and a series begins with its first packet. Counters begin anew with each deploy.

Specification: https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from testbed.lab.core.model.telemetry import DEPTH_LIMITS_BYTES, DropCause
from testbed.lab.features.scale_up.counters.metrics import domain_families
from testbed.lab.observe.lab_reader import LabReading
from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.telemetry import QUEUE_DROPS, Snapshot, buffer_rows

CONTENT_TYPE: str = CONTENT_TYPE_LATEST
_QUEUE = ("lab", "node", "interface", "network", "class")
_PORT = ("lab", "node", "interface", "network")


Networks = Mapping[tuple[str, str], str]
"""The network of each port, by node and interface, and by node and "" that of what a switch has beside ports."""

Readings = Callable[[], Sequence[LabReading]]


@dataclass(frozen=True, slots=True)
class _Series:
    """A metric that is one number for each queue."""

    name: str
    help: str
    value: Callable[[Snapshot], NDArray[Any]]
    unit: str = ""
    gauge: bool = False


def _queue(field: str) -> Callable[[Snapshot], NDArray[Any]]:
    return lambda snapshot: np.asarray(snapshot.queues[field])


def _ingress(field: str) -> Callable[[Snapshot], NDArray[Any]]:
    return lambda snapshot: np.asarray(snapshot.ingress[field])


_OF_QUEUES = (
    _Series("testbed_queue_bytes", "Bytes waiting in the egress queue now.", _queue("bytes"), "bytes", gauge=True),
    _Series("testbed_queue_max_bytes", "Deepest the queue has been.", _queue("max_bytes"), "bytes", gauge=True),
    _Series("testbed_queue_offered_packets", "Packets offered to the egress queue.", _queue("in_packets")),
    _Series("testbed_queue_offered_bytes", "Bytes offered to the egress queue.", _queue("in_bytes"), "bytes"),
    _Series("testbed_queue_sent_packets", "Packets that left the egress queue.", _queue("out_packets")),
    _Series("testbed_queue_sent_bytes", "Bytes that left the egress queue.", _queue("out_bytes"), "bytes"),
    _Series("testbed_queue_ce_marked_packets", "Packets marked CE at the queue (RFC 3168).", _queue("ce_packets")),
    _Series("testbed_queue_ect_packets", "Packets enqueued with ECT or CE.", _queue("ect_packets")),
    _Series("testbed_queue_trimmed_packets", "Packets cut to their headers.", _queue("trimmed_packets")),
    _Series("testbed_received_packets", "Packets the port received.", _ingress("in_packets")),
    _Series("testbed_received_bytes", "Bytes the port received.", _ingress("in_bytes"), "bytes"),
    _Series("testbed_received_ce_packets", "Packets received with CE.", _ingress("ce_packets")),
    _Series("testbed_ingress_held_bytes", "Received and still in the switch.", _ingress("bytes"), "bytes", gauge=True),
)

_DROPS: Mapping[DropCause, Callable[[Snapshot], NDArray[Any]]] = {
    **{cause: _queue(f"{name}_packets") for cause, name in QUEUE_DROPS.items()},
    DropCause.WIRE: _ingress("lost_packets"),
    DropCause.CAP: _ingress("policed_packets"),
}

_PAUSE_FRAMES: Mapping[str, Callable[[Snapshot], NDArray[Any]]] = {
    "received": _ingress("pause_frames"),
    "sent": lambda snapshot: np.asarray(snapshot.pauses["xoff_sent"] + snapshot.pauses["xon_sent"]),
}
_PAUSE_NS: Mapping[str, Callable[[Snapshot], NDArray[Any]]] = {
    "received": lambda snapshot: np.asarray(snapshot.pauses["paused_ns"]),
    "sent": lambda snapshot: np.asarray(snapshot.pauses["asked_ns"]),
}


class LabCollector(Collector):
    """Yields the metrics of all labs that `readings` gives. `histograms` adds the depths that arrivals found."""

    def __init__(self, readings: Readings, *, histograms: bool = False) -> None:
        self._readings = readings
        self._histograms = histograms

    def describe(self) -> Iterator[Metric]:
        """Describe nothing: registering must not read a lab."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        readings = self._readings()
        yield from _labs(readings)
        with_maps = [
            (reading.table, reading.snapshot, _Labels(reading.table, reading.snapshot, reading.networks))
            for reading in readings
            if reading.table is not None and reading.snapshot is not None
        ]
        for series in _OF_QUEUES:
            kind = GaugeMetricFamily if series.gauge else CounterMetricFamily
            family = kind(series.name, series.help, labels=_QUEUE, unit=series.unit)
            for _, snapshot, labels in with_maps:
                labels.add(family, series.value(snapshot).astype(np.int64))
            yield family
        yield self._by_label("testbed_queue_drops", "Packets lost, by cause.", "cause", _DROPS, with_maps)
        direction = "received: holds this queue back; sent: the peer's."
        yield self._by_label("testbed_pause_frames", f"PFC frames; {direction}", "direction", _PAUSE_FRAMES, with_maps)
        yield self._by_label(
            "testbed_pause_seconds",
            f"Time paused; {direction}",
            "direction",
            _PAUSE_NS,
            with_maps,
            per=1e9,
            unit="seconds",
        )
        if self._histograms:
            yield _depths([(snapshot, labels) for _, snapshot, labels in with_maps])
        yield _rates(readings)
        yield from _ports_and_buffers(with_maps)
        yield from _kernel_ports(readings)
        if any(reading.dropped for reading in readings):
            yield from _guards(readings)
        yield from domain_families({reading.lab: reading.domains for reading in readings})

    @staticmethod
    def _by_label(
        name: str,
        documentation: str,
        label: str,
        values: Mapping[Any, Callable[[Snapshot], NDArray[Any]]],
        with_maps: Sequence[tuple[PortTable, Snapshot, _Labels]],
        *,
        per: float = 1,
        unit: str = "",
    ) -> Metric:
        family = CounterMetricFamily(name, documentation, labels=(*_QUEUE, label), unit=unit)
        for _, snapshot, labels in with_maps:
            for value, read in values.items():
                labels.add(family, read(snapshot) if per == 1 else read(snapshot) / per, str(value))
        return family


def _port(lab: str, networks: Networks, node: str, interface: str) -> tuple[str, str, str, str]:
    """The values of `_PORT`. What is no port of the lab (a wire between VRFs) is in the network of its switch."""
    return lab, node, interface, networks.get((node, interface)) or networks.get((node, ""), "")


class _Labels:
    """The label values of the queues of a lab that saw anything, made once a scrape."""

    def __init__(self, table: PortTable, snapshot: Snapshot, networks: Networks) -> None:
        self.networks = networks
        self.places = np.argwhere(snapshot.active)
        self.labels = [
            (*_port(table.lab, networks, table.nodes[port], table.interfaces[port]), table.class_name(port, priority))
            for port, priority in self.places.tolist()
        ]

    def add(self, family: Any, values: NDArray[Any], *more: str) -> None:
        chosen = values[self.places[:, 0], self.places[:, 1]].tolist()
        for labels, value in zip(self.labels, chosen, strict=True):
            family.add_metric((*labels, *more), value)


def _labs(readings: Sequence[LabReading]) -> Iterator[Metric]:
    up = GaugeMetricFamily("testbed_lab_up", "1 if the lab's counters can be read.", labels=("lab",))
    scale = GaugeMetricFamily("testbed_lab_time_scale", "The lab's time scale k.", labels=("lab",))
    for reading in readings:
        up.add_metric((reading.lab,), 0 if reading.problem else 1)
        if not reading.problem:
            scale.add_metric((reading.lab,), reading.k)
    yield up
    yield scale


def _depths(with_maps: Sequence[tuple[Snapshot, _Labels]]) -> Metric:
    # A bin counts depths below a power of two, a bucket those up to its limit: depths are whole bytes.
    limits = [*(str(float(limit - 1)) for limit in DEPTH_LIMITS_BYTES), "+Inf"]
    family = HistogramMetricFamily(
        "testbed_queue_depth_bytes", "Depth that arriving packets found.", labels=_QUEUE, unit="bytes"
    )
    for snapshot, labels in with_maps:
        counts = snapshot.queues["depth"][labels.places[:, 0], labels.places[:, 1]].cumsum(axis=1)
        for values, row in zip(labels.labels, counts.tolist(), strict=True):
            family.add_metric(values, list(zip(limits, row, strict=True)), sum_value=None)
    return family


def _rates(readings: Sequence[LabReading]) -> Metric:
    """The rates of all ports: those that have queues of the data path, and those that the kernel counts alone."""
    family = GaugeMetricFamily("testbed_port_rate_bits_per_second", "Rate of the port in the lab.", labels=_PORT)
    for reading in readings:
        rates = dict(reading.rates)
        if (table := reading.table) is not None:
            places = list(zip(table.nodes, table.interfaces, strict=True))[1:]
            rates = dict(zip(places, table.rate_bps.tolist()[1:], strict=True)) | rates
        for (node, interface), bits in rates.items():
            family.add_metric(_port(reading.lab, reading.networks, node, interface), bits)
    return family


def _ports_and_buffers(with_maps: Sequence[tuple[PortTable, Snapshot, _Labels]]) -> Iterator[Metric]:
    malformed = CounterMetricFamily(
        "testbed_port_malformed_frames", "MAC control frames that are no PFC frame.", labels=_PORT
    )
    used = GaugeMetricFamily("testbed_buffer_used_bytes", "Shared buffer in use.", labels=("lab", "node"), unit="bytes")
    size = GaugeMetricFamily("testbed_buffer_size_bytes", "Shared buffer.", labels=("lab", "node"), unit="bytes")
    for table, snapshot, known in with_maps:
        bad = snapshot.ingress["malformed_frames"].sum(axis=1).tolist()
        for port in range(1, len(bad)):
            labels = _port(table.lab, known.networks, table.nodes[port], table.interfaces[port])
            malformed.add_metric(labels, bad[port])
        for buffer in buffer_rows(table, snapshot):
            used.add_metric((table.lab, buffer.node), buffer.used_bytes)
            size.add_metric((table.lab, buffer.node), buffer.size_bytes)
    yield from (malformed, used, size)


def _guards(readings: Sequence[LabReading]) -> Iterator[Metric]:
    labels = (*_PORT, "guard")
    packets = CounterMetricFamily("testbed_guard_dropped_packets", "Packets a guard dropped.", labels=labels)
    size = CounterMetricFamily("testbed_guard_dropped_bytes", "Bytes a guard dropped.", labels=labels, unit="bytes")
    for reading in readings:
        for (node, interface, guard), (dropped_packets, dropped_bytes) in reading.dropped.items():
            values = (*_port(reading.lab, reading.networks, node, interface), guard)
            packets.add_metric(values, dropped_packets)
            size.add_metric(values, dropped_bytes)
    yield from (packets, size)


def _kernel_ports(readings: Sequence[LabReading]) -> Iterator[Metric]:
    """Yield the counters of ports without queues, under names of their own: the kernel counts other things than the
    data path does."""
    for field, words in (
        ("rx_packets", "Packets the port received"),
        ("rx_bytes", "Bytes the port received"),
        ("rx_dropped", "Received packets dropped"),
        ("tx_packets", "Packets the port sent"),
        ("tx_bytes", "Bytes the port sent"),
        ("tx_dropped", "Packets dropped instead of sent"),
    ):
        unit = "bytes" if field.endswith("_bytes") else ""
        family = CounterMetricFamily(f"testbed_kernel_{field}", f"{words} (kernel).", labels=_PORT, unit=unit)
        for reading in readings:
            for (node, interface), counters in (reading.ports or {}).items():
                place = _port(reading.lab, reading.networks, node, interface)
                family.add_metric(place, getattr(counters, field))
        yield family


def render_metrics(readings: Readings, *, histograms: bool = False) -> bytes:
    """The text of one scrape, `# EOF` at its end. Its content type is `CONTENT_TYPE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LabCollector(readings, histograms=histograms))
    return encode_text(registry.collect())


def encode_text(families: Iterable[Metric]) -> bytes:
    """Encode as the library's `generate_latest` does, to the letter, for families without exemplars and timestamps.

    The library looks at every character of every name in every sample: 35 s for the ports of 1,024 NICs, where a
    scrape may take 10 s.
    """
    escaped: dict[str, str] = {}

    def escape(text: str) -> str:
        if text not in escaped:
            escaped[text] = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return escaped[text]

    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {escape(family.documentation)}\n# TYPE {family.name} {family.type}\n")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}\n")
        for sample in family.samples:
            labels = ",".join([f'{name}="{escape(value)}"' for name, value in sorted(sample.labels.items())])
            value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
            lines.append(f"{sample.name}{{{labels}}} {value}\n")
    lines.append("# EOF\n")
    return "".join(lines).encode()
