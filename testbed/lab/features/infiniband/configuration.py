"""The files that a subnet's programs are started from: its nodes and links for ibsim, and OpenSM's settings.

ibsim knows nodes by short identifiers (H1, S1), since it keeps 31 characters of a name where a client attaches; the
names that people see are node descriptions. GUIDs are numbers in the order of the links, so that one file gives the
same subnet each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.lab.core.model import InfinibandFabric
from testbed.lab.core.model.infiniband import InfinibandSettings, hca_ends, port_numbers, subnet_names
from testbed.protocols.infiniband.subnet import SubnetLink

FIRST_HCA_GUID, FIRST_SWITCH_GUID = 0x100000, 0x200000
"""The first GUIDs that ibsim gives. An HCA takes two: its own, and that of its port."""
FULL_MEMBER = 0x8000
"""The bit of a P_Key that says full membership (IBTA section 10.9.1.1)."""
HIGHEST_PRIORITY = 13
"""The priority of the first subnet manager; the others have one less each. The highest that runs is the master."""
POLLING_MS, POLLS = 1000, 3
"""A standby manager asks for the master so often, and takes over after so many polls without an answer. OpenSM's own
10 s and 4 make it a minute."""
AT_START = frozenset({"routing_engine", "nue_max_num_vls"})
"""The settings that OpenSM takes when it starts. It reads all others anew, and partitions, before each sweep of the
whole subnet (opensm/osm_subnet.c, `opt_tbl` and `osm_subn_rescan_conf_files`; opensm(8), SIGHUP)."""
ON_THE_WIRE = 32
"""The datagrams that a manager has on their way. With OpenSM's own 4, its threads and ibsim sleep for nearly each of
them: of 1,024 HCAs that is twice as many switches between threads."""
_MEMBERS_OF_LINE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """A node of a subnet as it is put into ibsim. `host` is "" for a switch."""

    name: str
    identifier: str
    guid: int
    ports: int
    is_switch: bool
    host: str = ""

    @property
    def port_guid(self) -> int:
        """The GUID of an HCA's port, by which partitions name it."""
        return self.guid if self.is_switch else self.guid + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubnet:
    """All nodes of a subnet by name, HCAs first, and its links."""

    nodes: Mapping[str, PlannedNode]
    links: tuple[SubnetLink, ...]
    settings: InfinibandSettings

    @property
    def hcas(self) -> list[PlannedNode]:
        """The HCAs, in the order of their GUIDs."""
        return [node for node in self.nodes.values() if not node.is_switch]

    def hcas_of(self, host: str) -> list[PlannedNode]:
        """Return the HCAs of a host."""
        return [node for node in self.nodes.values() if node.host == host]

    @property
    def managers(self) -> list[PlannedNode]:
        """The HCAs that have a subnet manager, the master to be first."""
        return [self.hcas_of(host)[0] for host in self.settings.sm_hosts]


def plan_subnet(fabric: InfinibandFabric) -> PlannedSubnet:
    """Number the nodes and ports of a fabric."""
    names, numbers = subnet_names(fabric), port_numbers(fabric)
    nodes = {
        names[end]: PlannedNode(
            name=names[end],
            identifier=f"H{index + 1}",
            guid=FIRST_HCA_GUID + 2 * index,
            ports=1,
            is_switch=False,
            host=end.node,
        )
        for index, end in enumerate(hca_ends(fabric))
    }
    ports = {node.name: 1 for node in fabric.switches}
    for end, number in numbers.items():
        if end.node in ports:
            ports[end.node] = max(ports[end.node], number)
    nodes |= {
        name: PlannedNode(
            name=name, identifier=f"S{index + 1}", guid=FIRST_SWITCH_GUID + index, ports=count, is_switch=True
        )
        for index, (name, count) in enumerate(ports.items())
    }
    links = tuple(
        SubnetLink(
            a=names[link.a],
            a_port=numbers[link.a],
            b=names[link.b],
            b_port=numbers[link.b],
            rate_bps=link.rate.bps,
        )
        for link in fabric.links
    )
    return PlannedSubnet(nodes=nodes, links=links, settings=fabric.settings)


def network_text(subnet: PlannedSubnet) -> str:
    """The file of nodes and links that ibsim reads, in the format of ibnetdiscover."""
    ports: dict[str, list[str]] = {name: [] for name in subnet.nodes}
    for link in subnet.links:
        for name, port, other, other_port in (
            (link.a, link.a_port, link.b, link.b_port),
            (link.b, link.b_port, link.a, link.a_port),
        ):
            ports[name].append(f'[{port}]\t"{subnet.nodes[other].identifier}"[{other_port}]')
    lines = []
    for name, node in subnet.nodes.items():
        kind = "Switch" if node.is_switch else "Hca"
        lines += [f'{kind}\t{node.ports} "{node.identifier}"\t# "{name}"', *ports[name], ""]
    return "\n".join(lines) + "\n"


def simulator_limits(subnet: PlannedSubnet) -> list[str]:
    """The options that give ibsim room for a subnet: its own are 2,048 nodes, 256 switches and 30,720 LIDs."""
    nodes, switches = len(subnet.nodes), sum(node.is_switch for node in subnet.nodes.values())
    ports = sum(node.ports + 1 for node in subnet.nodes.values())
    lids = max(1024, -(-(nodes + 64) // 64) * 64)
    return ["-N", str(nodes + 1), "-S", str(switches + 1), "-P", str(ports + 1), "-L", str(lids)]


def manager_settings(
    subnet: PlannedSubnet, directory: Path, partitions: Path, priority: int, *, lanes: bool = False
) -> dict[str, str]:
    """OpenSM's settings. What it writes goes into `directory`: its dumps go to /var/log otherwise, and its log, which
    commands wait for, is written when a buffer is full. `lanes`: where one lane is for all, it writes its own tables of
    lanes, which nodes have at their start (but that those of ibsim name 15 lanes, of which links have 8)."""
    settings = subnet.settings
    values = {
        "force_log_flush": "TRUE",
        "dump_files_dir": str(directory),
        "routing_engine": ",".join(settings.routing),
        "sweep_interval": str(max(1, round(settings.sweep.seconds))),
        "sm_priority": str(priority),
        "sminfo_polling_timeout": str(POLLING_MS),
        "polling_retry_number": str(POLLS),
        "partition_config_file": str(partitions),
        "qos": "TRUE" if settings.has_lanes or lanes else "FALSE",
        "max_wire_smps": str(ON_THE_WIRE),
        "max_wire_smps2": str(ON_THE_WIRE),
    }
    if "nue" in settings.routing:
        values["nue_max_num_vls"] = str(settings.vls)
    if settings.has_lanes:
        values |= {
            "qos_max_vls": str(settings.vls),
            "qos_high_limit": str(settings.vl_high_limit),
            "qos_vlarb_high": _arbitration(settings.vl_high) or "0:0",
            "qos_vlarb_low": _arbitration(settings.vl_low),
            "qos_sl2vl": ",".join(map(str, settings.sl2vl)),
        }
    return values


def manager_text(values: Mapping[str, str]) -> str:
    """The file of OpenSM's settings."""
    return "".join(f"{key} {value}\n" for key, value in values.items())


def _arbitration(table: tuple[tuple[int, int], ...]) -> str:
    return ",".join(f"{lane}:{weight}" for lane, weight in table)


def partitions_text(subnet: PlannedSubnet) -> str:
    """OpenSM's file of partitions. With any, the default partition has all as limited members, who reach the manager
    and not each other."""
    settings = subnet.settings
    if not settings.partitions:
        return "Default=0x7fff : ALL=full;\n"
    return "Default=0x7fff : ALL=limited, SELF=full;\n" + "".join(_partition_lines(subnet))


def _partition_lines(subnet: PlannedSubnet) -> Iterator[str]:
    for number, partition in enumerate(subnet.settings.partitions, 1):
        hosts = set(partition.hosts)
        members = [f"{node.port_guid:#x}=full" for node in subnet.hcas if node.host in hosts]
        lines = [
            ", ".join(members[start : start + _MEMBERS_OF_LINE]) for start in range(0, len(members), _MEMBERS_OF_LINE)
        ]
        yield f"{partition.name}={number:#06x}, sl={partition.sl}, defmember=full :\n  " + ",\n  ".join(lines) + ";\n"
