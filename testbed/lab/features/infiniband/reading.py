"""Reads a subnet back from its nodes: LIDs, links and forwarding tables from ibsim, which holds them, and what lanes
and partitions each port has from the nodes, by management datagrams.

Nothing is taken from what the manager says of itself but the name of its routing engine. Tables are read whole: tools
such as ibroute and dump_lfts leave out the largest LID where it is a multiple of 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.base.errors import DriverError
from testbed.lab.core.model.infiniband import LANE_ENGINES
from testbed.lab.features.infiniband.configuration import FULL_MEMBER, PlannedNode, PlannedSubnet
from testbed.lab.features.infiniband.manager import managers_of
from testbed.lab.features.infiniband.plane import Plane, ask_tables
from testbed.lab.features.infiniband.simulator import SimulatedNode, Simulator, changed_links
from testbed.protocols.infiniband.subnet import SERVICE_LEVELS, Subnet, SubnetLink, SubnetNode, SubnetPartition

PKEY_TABLE, SL_TO_VL, VL_ARBITRATION, SM_INFO = 0x16, 0x17, 0x18, 0x20
"""Attributes (IBTA section 14.2.5)."""
LOW_TABLE, HIGH_TABLE = 1 << 16, 3 << 16
"""Modifiers: the first blocks of the two tables of VL arbitration."""
SM_STATES = ("not active", "discovering", "standby", "master")
MOST_PATHS = 70_000
"""So many paths are asked for their service levels, one by one: those between 256 HCAs."""
_PKEYS_OF_BLOCK = 32
_DEFAULT_PKEY = 0x7FFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerState:
    """A subnet manager as its HCA tells: `state` is one of `SM_STATES`, or "dead" where it does not answer."""

    hca: str
    lid: int
    priority: int
    state: str


class TooManyPaths(DriverError):
    """A subnet of too many HCAs for each path to be asked for its service level."""


@dataclass(frozen=True, kw_only=True)
class SubnetReader:
    """Reads one subnet."""

    plane: Plane
    planned: PlannedSubnet

    def read(self) -> Subnet:
        """Return the subnet as its nodes hold it. Raises `DriverError`, `TooManyPaths`."""
        nodes = Simulator(plane=self.plane).dump()
        found = self.nodes(nodes)
        asker = self._asker(nodes)
        lanes = self._lanes(found, asker)
        engine = self.engine(nodes)
        return Subnet(
            nodes=found,
            links=self._links(nodes),
            lfts=self._tables(nodes),
            vls=self.planned.settings.vls,
            **lanes,
            sls=self._service_levels(nodes, engine, asker),
            partitions=self._partitions(),
            engine=engine,
            sm=self.master(nodes),
        )

    def rerouted(self, before: Subnet) -> Subnet:
        """Return a subnet with the links and forwarding tables that its nodes hold now, all else as it was before:
        nobody is asked anything. Raises `DriverError`."""
        nodes = Simulator(plane=self.plane).dump()
        return replace(before, links=self._links(nodes), lfts=self._tables(nodes))

    def _links(self, nodes: Mapping[str, SimulatedNode]) -> tuple[SubnetLink, ...]:
        cut = set(changed_links(nodes, self.planned))
        return tuple(link for index, link in enumerate(self.planned.links) if index not in cut)

    def nodes(self, nodes: Mapping[str, SimulatedNode]) -> dict[str, SubnetNode]:
        """Return the nodes by name."""
        return {
            planned.name: SubnetNode(
                name=planned.name,
                guid=planned.guid,
                lid=nodes[planned.identifier].lid,
                ports=planned.ports,
                is_switch=planned.is_switch,
            )
            for planned in self.planned.nodes.values()
        }

    def _tables(self, nodes: Mapping[str, SimulatedNode]) -> dict[str, bytes]:
        return {
            planned.name: bytes(nodes[planned.identifier].table)
            for planned in self.planned.nodes.values()
            if planned.is_switch
        }

    def _asker(self, nodes: Mapping[str, SimulatedNode]) -> PlannedNode:
        """The HCA that asks: one that has a LID and is linked."""
        for planned in self.planned.hcas:
            node = nodes[planned.identifier]
            if node.lid and node.ports[1].state == "Active":
                return planned
        raise DriverError("no HCA of the subnet is active", operation="ask", hint="`testbed check` says why")

    def _ask(self, asker: PlannedNode, questions: Sequence[Sequence[Any]]) -> list[bytes | None]:
        """Ask for tables at an HCA; None for each that nobody answers. Raises `DriverError`.

        A tool that was killed stays attached, and ibsim has few places: they are freed before.
        """
        Simulator(plane=self.plane).forget_dead()
        return ask_tables(self.plane, asker.identifier, questions)

    def master(self, nodes: Mapping[str, SimulatedNode]) -> str:
        """Return the HCA of the manager that most HCAs were told of; "" for none."""
        told = [nodes[planned.identifier].ports[1].manager_lid for planned in self.planned.hcas]
        lid = max(set(told), key=told.count, default=0)
        return next((each.name for each in self.planned.hcas if lid and nodes[each.identifier].lid == lid), "")

    def engine(self, nodes: Mapping[str, SimulatedNode]) -> str:
        """Return the routing engine whose tables are in force, which only the master's log says."""
        master = self.master(nodes)
        logs = {manager.node.name: manager.read_log() for manager in managers_of(self.plane, self.planned)}
        return logs[master].engine if master in logs else ""

    # ------------------------------------------------------------------ lanes

    def _lanes(self, found: Mapping[str, SubnetNode], asker: PlannedNode) -> dict[str, Any]:
        """The tables of lanes of the HCA that asks; where there is one lane for all, what the settings say."""
        settings = self.planned.settings
        if not settings.has_lanes:
            return {name: getattr(settings, name) for name in ("sl2vl", "vl_low", "vl_high", "vl_high_limit")}
        lid = found[asker.name].lid
        questions = [
            ["smp", lid, SL_TO_VL, 0],
            ["smp", lid, VL_ARBITRATION, LOW_TABLE],
            ["smp", lid, VL_ARBITRATION, HIGH_TABLE],
        ]
        sl2vl, low, high = self._ask(asker, questions)
        if sl2vl is None or low is None or high is None:
            raise DriverError(f"{asker.name} does not answer for its lanes", operation="ask")
        return {
            "sl2vl": decode_sl2vl(sl2vl),
            "vl_low": decode_arbitration(low),
            "vl_high": decode_arbitration(high),
            "vl_high_limit": settings.vl_high_limit,
        }

    def lane_tables(self) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        """Yield the table of lanes of every HCA, and of every output of every switch from its first input, by name."""
        nodes = Simulator(plane=self.plane).dump()
        found = self.nodes(nodes)
        names, questions = [], []
        for name, node in found.items():
            linked = [number for number, port in nodes[self.planned.nodes[name].identifier].ports.items() if port.peer]
            if node.lid and not node.is_switch:
                names.append(name)
                questions.append(["smp", node.lid, SL_TO_VL, 0])
            elif node.lid:
                outputs = [number for number in linked if number]
                for output in outputs:
                    names.append(f"{name}:{output}")
                    questions.append(["smp", node.lid, SL_TO_VL, (outputs[0] << 8) | output])
        answers = self._ask(self._asker(nodes), questions)
        for name, answer in zip(names, answers, strict=True):
            yield name, None if answer is None else decode_sl2vl(answer)

    def _service_levels(
        self, nodes: Mapping[str, SimulatedNode], engine: str, asker: PlannedNode
    ) -> dict[tuple[int, int], int]:
        """The service levels of paths: asked for where an engine gives them, else those of partitions."""
        lids = {planned.name: nodes[planned.identifier].lid for planned in self.planned.hcas}
        found: dict[tuple[int, int], int] = {}
        if engine not in LANE_ENGINES:
            for pair, sl in self._of_partitions(lids):
                if sl:
                    found[pair] = sl
                else:
                    found.pop(pair, None)  # a partition with a larger P_Key has given it one
            return found
        active = [planned for planned in self.planned.hcas if lids[planned.name]]
        pairs = [(a, b) for a in active for b in active if a is not b]
        if len(pairs) > MOST_PATHS:
            raise TooManyPaths(
                f"{engine} gives each of {len(pairs):,} paths a service level, and up to {MOST_PATHS:,} are asked for",
                operation="ask",
                hint="routing: [ftree] needs one level, on a fat tree; or a smaller fabric",
            )
        manager = lids.get(self.master(nodes), 0)
        questions = [["path", a.port_guid, b.port_guid, manager] for a, b in pairs]
        for (a, b), answer in zip(pairs, self._ask(asker, questions), strict=True):
            if answer is not None and (sl := decode_path_sl(answer)):
                found[lids[a.name], lids[b.name]] = sl
        return found

    def _of_partitions(self, lids: Mapping[str, int]) -> Iterator[tuple[tuple[int, int], int]]:
        for partition in reversed(self._partitions()):  # of two that have a pair, OpenSM takes the one with less P_Key
            members = [lids[name] for name in partition.members]
            for source in members:
                for destination in members:
                    if source != destination:
                        yield (source, destination), partition.sl

    # ------------------------------------------------------------------ partitions, managers

    def _partitions(self) -> tuple[SubnetPartition, ...]:
        return tuple(
            SubnetPartition(
                name=partition.name,
                pkey=number,
                sl=partition.sl,
                members=tuple(node.name for host in partition.hosts for node in self.planned.hcas_of(host)),
            )
            for number, partition in enumerate(self.planned.settings.partitions, 1)
        )

    def pkey_tables(self) -> dict[str, frozenset[int] | None]:
        """Return the P_Keys that each HCA has, with the bit of full membership; None where it does not answer."""
        nodes = Simulator(plane=self.plane).dump()
        hcas = [planned for planned in self.planned.hcas if nodes[planned.identifier].lid]
        questions = [["smp", nodes[planned.identifier].lid, PKEY_TABLE, 0] for planned in hcas]
        answers = self._ask(self._asker(nodes), questions)
        return {
            planned.name: None if answer is None else decode_pkeys(answer)
            for planned, answer in zip(hcas, answers, strict=True)
        }

    def wanted_pkeys(self) -> dict[str, frozenset[int]]:
        """Return the P_Keys that each HCA is to have by the file: of the partitions that it is in, and the default one,
        of which only the master's is a full member where there are others."""
        master = self.master(Simulator(plane=self.plane).dump())
        partitions = self._partitions()
        found = {}
        for planned in self.planned.hcas:
            mine = {FULL_MEMBER | each.pkey for each in partitions if planned.name in each.members}
            full = not partitions or planned.name == master
            found[planned.name] = frozenset(mine | {_DEFAULT_PKEY | (FULL_MEMBER if full else 0)})
        return found

    def managers(self) -> list[ManagerState]:
        """Return the state of every manager of the subnet."""
        nodes = Simulator(plane=self.plane).dump()
        planned = self.planned.managers
        lids = [nodes[each.identifier].lid for each in planned]
        questions = [["smp", lid, SM_INFO, 0] for lid in lids]
        answers = self._ask(self._asker(nodes), questions)
        return [
            _manager(each.name, lid, answer if lid else None)
            for each, lid, answer in zip(planned, lids, answers, strict=True)
        ]


def _manager(name: str, lid: int, answer: bytes | None) -> ManagerState:
    if answer is None:
        return ManagerState(hca=name, lid=lid, priority=0, state="dead")
    priority, state = answer[20] >> 4, answer[20] & 0xF
    return ManagerState(
        hca=name, lid=lid, priority=priority, state=SM_STATES[state] if state < len(SM_STATES) else str(state)
    )


def decode_sl2vl(data: bytes) -> tuple[int, ...]:
    """Read the lanes of 16 service levels, four bits each (SLtoVLMappingTable, IBTA section 14.2.5.8)."""
    return tuple(lane for byte in data[: SERVICE_LEVELS // 2] for lane in (byte >> 4, byte & 0xF))


def decode_arbitration(data: bytes) -> tuple[tuple[int, int], ...]:
    """Read a table of VL arbitration: pairs of lane and weight, those without a weight left out (section 14.2.5.9)."""
    pairs = ((data[index] & 0xF, data[index + 1]) for index in range(0, len(data) - 1, 2))
    return tuple((lane, weight) for lane, weight in pairs if weight)


def decode_pkeys(data: bytes) -> frozenset[int]:
    """Read a block of a P_Key table, whose empty entries are 0 (section 14.2.5.7)."""
    keys = (int.from_bytes(data[2 * index : 2 * index + 2], "big") for index in range(_PKEYS_OF_BLOCK))
    return frozenset(key for key in keys if key & ~FULL_MEMBER)


def decode_path_sl(data: bytes) -> int:
    """Read the service level of a path record: the low four bits of bytes 52 and 53 (section 15.2.5.16)."""
    return data[53] & 0xF
