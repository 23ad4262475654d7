"""Ports as the pause agent is told of them: a test says only what it is about."""

from typing import Any

from testbed.daemons.portd.attachment import PortAttachment


def attached_port(number: int, peer: int, **changes: Any) -> PortAttachment:
    """A port of 50 Mbit/s and an MTU of 1500 that is lossless at priority 3."""
    values: dict[str, Any] = {
        "node": f"n{number}",
        "interface": "eth0",
        "namespace": "/dev/null",
        "ifindex": 2,
        "mac": f"02:00:00:00:00:{number % 256:02x}",
        "rate_bps": 50_000_000,
        "mtu_bytes": 1500,
        "lossless": (3,),
    }
    return PortAttachment(number=number, peer=peer, **(values | changes))
