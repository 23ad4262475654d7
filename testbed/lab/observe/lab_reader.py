"""Reading all labs of this machine at one moment, again and again, while labs come and go."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.base.errors import TestbedError
from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.features.scale_up.counters.reading import DomainReading, read_domains
from testbed.lab.observe.dropped import Dropped, read_dropped
from testbed.lab.observe.port_table import PortTable, tabulate_ports
from testbed.lab.observe.telemetry import Snapshot, take_snapshot


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabReading:
    """One lab at one moment: the maps of a lab with `qos:`, and the kernel's counters of the ports that have none.

    `problem` says why there is neither.
    """

    lab: str
    k: float = 0.0
    table: PortTable | None = None
    snapshot: Snapshot | None = None
    ports: Mapping[tuple[str, str], PortCounters] | None = None
    dropped: Dropped = field(default_factory=dict)
    networks: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The network of each port, and by node and "" that of what a switch has beside ports."""
    rates: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The rates of ports without queues of the data path, in bits/s of lab time."""
    domains: Sequence[DomainReading] = ()
    """Its scale-up domains that have switches."""
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A lab that was read before: its plan takes a while, so it is made once, and again when the lab was changed."""

    lab: RunningLab
    table: PortTable | None
    networks: Mapping[tuple[str, str], str]
    plain: Mapping[tuple[str, str], int]
    """The rates of ports without queues of the data path."""


class LabReader:
    """Reads the lab `only`, or all of them. Between two readings it holds no map open."""

    def __init__(self, state: StateDirectory, *, only: str | None = None) -> None:
        self._state = state
        self._only = only
        self._known: dict[str, _Known] = {}

    def read(self) -> Sequence[LabReading]:
        """A reading of each lab that is there now."""
        names = self._state.names()
        wanted = names if self._only is None else [name for name in names if name == self._only]
        self._known = {name: known for name, known in self._known.items() if name in wanted}
        return [reading for name in wanted if (reading := self._read(name)) is not None]

    def _read(self, name: str) -> LabReading | None:
        """None for a lab that went while it was read."""
        try:
            return self._read_maps(self._of(name))
        except (TestbedError, OSError) as error:
            if not self._state.exists(name):
                return None
            if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.EPERM, errno.EACCES):
                raise
            return LabReading(lab=name, problem=str(error))

    def _of(self, name: str) -> _Known:
        record = self._state.read(name)
        known = self._known.get(name)
        if known is None or known.lab.record != record:
            lab = RunningLab(record, self._state)
            table = tabulate_ports(lab.plan) if lab.plan.tables is not None else None
            networks = {(port.node, port.name): port.network for port in lab.plan.ports}
            queues = {(item.node, item.name) for item in lab.plan.installs}
            rates = {(port.node, port.name): port.rate_bps for port in lab.plan.ports}
            plain = {place: rate for place, rate in rates.items() if place not in queues}
            networks |= {(switch.node, ""): switch.network for switch in lab.plan.switches}
            known = self._known[name] = _Known(lab, table, networks, plain)
        return known

    @staticmethod
    def _read_maps(known: _Known) -> LabReading:
        lab = known.lab
        counters = lab.counters() if known.plain else {}
        reading = LabReading(
            lab=lab.name,
            k=lab.record.k,
            ports={place: counted for place, counted in counters.items() if place in known.plain},
            dropped=read_dropped(lab),
            networks=known.networks,
            rates=known.plain,
            domains=read_domains(lab),
        )
        if known.table is None:
            return reading
        with contextlib.closing(lab.maps()) as maps:
            return replace(reading, table=known.table, snapshot=take_snapshot(maps))
