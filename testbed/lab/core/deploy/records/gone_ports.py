"""The packets that went through ports of a lab's switches that are gone, for the accounts of the switches that stay.

A switch forwards no more of a class than came in. With a port that an `apply` takes away go its counters, and what came
in there has left by ports that stay: so its packets are kept for as long as the switch is there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.datapath.abi import CLASSES
from testbed.base.files import write_atomically
from testbed.lab.core.deploy.records.journal import writing_state

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps

FILE = "gone-ports.json"
COUNTERS = (("ingress", "in_packets"), ("queues", "forwarded_packets"), ("queues", "trimmed_packets"))
"""The counters that are kept, by map and name."""

Packets = list[list[int]]
"""The sum of each of `COUNTERS` by class."""
_GOING = ""
"""The key of the ports whose counters are not cleared yet, by `NODE:NUMBER`: no node is called so."""


def read_gone_ports(directory: Path) -> dict[str, Packets]:
    """Return the packets of ports that are gone by their switches, from the state directory of a lab; none where nobody
    kept any."""
    kept, _ = _read(directory)
    return kept


def keep_gone_ports(
    directory: Path, maps: LabMaps, ports: Iterable[tuple[str, int]], switches: Collection[str]
) -> None:
    """Keep the packets of ports, each with its node and number, that are about to go; of nodes that are not among
    `switches` nothing is. Raises `StateError`.

    Call before their counters are cleared, and `settle_gone_ports` after. A change that was broken off in between may
    do both again: nothing is counted twice, and nothing is forgotten.
    """
    kept, before = _read(directory)
    kept = {node: packets for node, packets in kept.items() if node in switches}
    going: dict[str, Packets] = {}
    for node, number in ports:
        if node in switches:
            counted = [maps.by_port(name)[counter][number].tolist() for name, counter in COUNTERS]
            known = before.get(f"{node}:{number}", counted)  # they may be cleared by now
            going[f"{node}:{number}"] = [
                [max(one, other) for one, other in zip(row, old, strict=True)]
                for row, old in zip(counted, known, strict=True)
            ]
    _write(directory / FILE, kept, going)


def settle_gone_ports(directory: Path) -> None:
    """Add the packets of ports that have gone to those of their switches: their counters are cleared.

    Raises `StateError`.
    """
    kept, going = _read(directory)
    if not going:
        return
    for place, packets in going.items():
        sums = kept.setdefault(place.rpartition(":")[0], [[0] * CLASSES for _ in COUNTERS])
        for row, more in zip(sums, packets, strict=True):
            row[:] = [one + other for one, other in zip(row, more, strict=True)]
    _write(directory / FILE, kept, {})


def forget_gone_ports(directory: Path) -> None:
    """Forget all that was kept: with the data path the counters of all switches are gone."""
    (directory / FILE).unlink(missing_ok=True)


def _read(directory: Path) -> tuple[dict[str, Packets], dict[str, Packets]]:
    """Return the packets of switches, and those of ports that are about to go."""
    try:
        found = json.loads((directory / FILE).read_bytes())
    except (OSError, ValueError):
        return {}, {}
    going = found.pop(_GOING, {})
    return {str(node): packets for node, packets in found.items()}, {
        str(port): packets for port, packets in going.items()
    }


def _write(path: Path, kept: Mapping[str, Packets], going: Mapping[str, Packets]) -> None:
    with writing_state(path):
        write_atomically(path, json.dumps({**kept, _GOING: going} if going else kept).encode())
