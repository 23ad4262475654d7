"""The process's configuration: the collector, how often it samples, and the ports of every switch."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

PROCESS_NAME = "sflow-agents"
"""As `ps` shows it."""
MACHINE_NETWORK = "TESTBED_MACHINE_NETWORK"
"""The variable of the environment with a descriptor of this machine's network namespace, where a collector may listen.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPort:
    """A port of a switch. `number` is its number in the data path, 0 for a port without queues of it.

    `namespace` is that of the switch, or of the VRF that the port is in. `rate_bps` is its rate in the lab.
    """

    name: str
    ifindex: int
    namespace: str
    rate_bps: int
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSwitch:
    """A switch: an agent of its own, which sends from its address of management."""

    name: str
    namespace: str
    address: IPv4Address
    ports: tuple[SampledPort, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SflowConfiguration:
    """All of it. `sampling`: one packet in so many is sampled. `data_path` is where the lab's maps are pinned; None:
    it has none. A `collector` of loopback is this machine's, any other is in the management network."""

    lab: str
    collector: IPv4Address
    collector_port: int
    sampling: int
    polling_ns: int
    data_path: Path | None
    switches: tuple[SampledSwitch, ...]
