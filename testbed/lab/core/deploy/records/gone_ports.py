"""The packets that went through ports of a lab's switches that are gone, for the accounts of the switches that stay.

A switch forwards no more of a class than came in. With a port that an `apply` takes away go its counters, and what came
in there has left by ports that stay: so its packets are kept for as long as the switch is there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import LabMaps
from testbed.base.files import write_atomically
from testbed.lab.core.deploy.records.journal import state_error

FILE = "gone-ports.json"
COUNTERS = (("ingress", "in_packets"), ("queues", "forwarded_packets"), ("queues", "trimmed_packets"))
"""The counters that are kept, by map and name."""

Packets = list[list[int]]
"""The sum of each of `COUNTERS` by class."""


def read_gone_ports(directory: Path) -> dict[str, Packets]:
    """Return the packets of ports that are gone by their switches, from the state directory of a lab; none where nobody
    kept any."""
    try:
        found = json.loads((directory / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(node): packets for node, packets in found.items()}


def keep_gone_ports(
    directory: Path, maps: LabMaps, ports: Iterable[tuple[str, int]], switches: Collection[str]
) -> None:
    """Add the packets of ports, each with its node and number, to those that are kept; of nodes that are not among
    `switches` nothing is. Call before the counters are cleared. Raises `StateError`."""
    kept = {node: packets for node, packets in read_gone_ports(directory).items() if node in switches}
    for node, number in ports:
        if node in switches:
            sums = kept.setdefault(node, [[0] * CLASSES for _ in COUNTERS])
            for place, (name, counter) in enumerate(COUNTERS):
                counted = maps.by_port(name)[counter][number].tolist()
                sums[place] = [one + other for one, other in zip(sums[place], counted, strict=True)]
    _write(directory / FILE, kept)


def _write(path: Path, kept: Mapping[str, Packets]) -> None:
    try:
        write_atomically(path, json.dumps(kept).encode())
    except OSError as error:
        raise state_error(path, error) from error
