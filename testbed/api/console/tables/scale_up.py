"""The tables of a lab's GPUs, and of their links to the planes of scale-up domains with packets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.api.console.sources.source import Source
from testbed.api.console.tables.ports import measured
from testbed.api.console.tables.table import Nodes, PageTable, TableQuery
from testbed.base.rows import column
from testbed.lab.core.model import BACKEND
from testbed.lab.features.scale_up.counters.reading import read_domains


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A NIC port of a host's GPUs in the back end, and the scale-up domain that the host is in."""

    host: str
    nic: str
    gpus: int
    rail: int
    domain: str = column(sparse=True, default="")
    switch: str
    rate: str


def _gpu_rows(source: Source, query: TableQuery, nodes: Nodes) -> Iterator[GpuRow]:
    model = source.shape.model
    domains = model.host_domains if model.scale_up.stated else {}
    for link in model.links:
        if link.rail and link.network == BACKEND and nodes(link.a.node):
            yield GpuRow(
                host=link.a.node,
                nic=link.a.interface,
                gpus=model.gpus_per_nic,
                rail=link.rail,
                domain=domains.get(link.a.node, ""),
                switch=link.b.node,
                rate=str(link.rate),
            )


GPUS = PageTable(
    name="gpus",
    title="GPUs",
    kind=GpuRow,
    rows=_gpu_rows,
    place=lambda row: f"{row.host}:{row.nic}",
    key=lambda row: f"port:{row.host}:{row.nic}",
    of=lambda source: bool(source.shape.document["gpus"]),
    moments=True,  # they are what they are
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneRow:
    """A link of a GPU to a plane of its scale-up domain, as the switch's end of it counts since the deploy."""

    gpu: str
    plane: int
    domain: str
    state: str
    rate: str
    sent: int | None = measured("B")
    received: int | None = measured("B")
    again: int | None = measured("frames", heading="sent again")
    dropped: int | None = measured("frames")


def _plane_rows(source: Source, query: TableQuery, nodes: Nodes) -> Iterator[PlaneRow]:
    scale_up = source.shape.model.scale_up
    for domain in read_domains(source.lab):
        for reading in domain.links:
            link = reading.link
            if not nodes(link.host):
                continue
            counters = reading.counters
            yield PlaneRow(
                gpu=link.gpu_name,
                plane=link.plane,
                domain=link.domain,
                state="down" if reading.errors.down else "up",
                rate=str(scale_up.plane_rate(link.plane)),
                sent=counters["sent_bytes"],
                received=counters["received_bytes"],
                again=counters["llr_tx_replay"],
                dropped=counters["dropped_frames"],
            )


PLANES = PageTable(
    name="planes",
    title="Planes",
    kind=PlaneRow,
    rows=_plane_rows,
    place=lambda row: row.gpu.partition(".gpu")[0],
    key=lambda row: f"gpu:{row.gpu.replace('.gpu', '/')}",
    of=lambda source: source.live and bool(source.lab.plan.scale_up_domains),
)
