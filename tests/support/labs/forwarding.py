"""A check that a node of a lab passes on packets that are not for it."""

from __future__ import annotations

from typing import Any


def forwarded(lab: Any, node: str) -> int:
    """Datagrams that a node has passed on (RFC 4293, ipForwDatagrams)."""
    names, values = (
        line.split() for line in lab.run(node, ["cat", "/proc/net/snmp"]).stdout.splitlines() if line[:3] == "Ip:"
    )
    return int(values[names.index("ForwDatagrams")])
