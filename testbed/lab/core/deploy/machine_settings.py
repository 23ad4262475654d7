"""Settings of the machine that labs need otherwise: room for neighbours and for packets that wait for a processor, and
TCP's congestion control for namespaces.

The kernel's tables of neighbours count over all namespaces together, and so do their limits. And a namespace may be
given those congestion controls alone that the machine allows to everybody (`tcp_set_default_congestion_control` in
net/ipv4/tcp_cong.c). A packet that leaves a veth waits for the processor that takes it in at the other end
(`netif_rx`); beyond `netdev_max_backlog` the kernel drops it, which no wire does.

State directories may be several, tests beside a lab, while the limits are the machine's. So what each needs, and what
the limits were before any did, is kept in one place: who comes second does not take raised limits for the machine's
own. A start of the machine forgets both.

The limits are seen in the machine's first network namespace alone (Linux, net/core/neighbour.c), and a container may
see them read-only. From anywhere else they stay as they are, which `doctor` tells; needs are noted all the same.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.base.files import remains_of
from testbed.endpoints.worker.streams.tcp_socket import has_congestion_control
from testbed.lab.core.deploy.records.files import locked, write_state
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC

LIMITS = ("gc_thresh1", "gc_thresh2", "gc_thresh3")
"""The limits below /proc/sys/net/ipv4/neigh/default, and below ipv6. Source: Linux, networking/ip-sysctl.rst."""
FACTORS = (1, 2, 4)
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
"""The machine's; other network namespaces may have it to read."""
BACKLOG, BACKLOG_PACKETS = Path("/proc/sys/net/core/netdev_max_backlog"), 20_000
"""Packets that wait for one processor. Source: Linux, admin-guide/sysctl/net.rst."""
PLACE = Path("/run/testbed-neighbours.json")
"""Named when it held those limits alone. Labs that are up, perhaps of an older version, have it open."""


@dataclass(slots=True)
class _Record:
    """`before` are values by the path of their limit, `needs` entries by state directory."""

    before: dict[str, int | str] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)


def adjust(state: Path, entries: int) -> None:
    """Make room for `entries` neighbours of the labs of this state directory, beside those of others, and for packets
    that wait, and allow TCP's default. Idempotent. What cannot be changed from here stays as it is."""
    with locked(_lock(), wait=True):
        record = _read()
        record.needs[str(state)] = entries
        total = sum(record.needs.values())
        wanted = {path: total * factor for path, factor in _limits().items()} | {BACKLOG: BACKLOG_PACKETS}
        wanted = {path: value for path, value in wanted.items() if _is_adjustable(path)}
        current = {path: int(path.read_text()) for path in wanted}
        low = [path for path in wanted if current[path] < wanted[path]]
        changes: dict[Path, int | str] = {path: wanted[path] for path in low}
        before: dict[Path, int | str] = {path: current[path] for path in low}
        if _is_adjustable(ALLOWED) and has_congestion_control(DEFAULT_TCP_CC):
            allowed = ALLOWED.read_text().split()
            if DEFAULT_TCP_CC not in allowed:
                before[ALLOWED], changes[ALLOWED] = " ".join(allowed), " ".join([*allowed, DEFAULT_TCP_CC])
        for path, value in before.items():
            record.before.setdefault(str(path), value)
        write_state(PLACE, json.dumps(asdict(record)))
        for path, value in changes.items():
            path.write_text(str(value))


def restore(state: Path) -> None:
    """The labs of this state directory are gone. The last one puts the limits back.

    Those that cannot be changed from here are remembered for who can.
    """
    if not PLACE.exists():
        return
    with locked(_lock(), wait=True):
        record = _read()
        record.needs.pop(str(state), None)
        if not record.needs:
            for path in [path for path in record.before if _is_adjustable(Path(path))]:
                value = record.before.pop(path)
                with suppress(OSError):  # a congestion control that has been unloaded meanwhile
                    Path(path).write_text(str(value))
        if record.needs or record.before:
            write_state(PLACE, json.dumps(asdict(record)))
            return
        for remains in (PLACE, *remains_of(PLACE), _lock()):
            remains.unlink(missing_ok=True)


def _limits() -> dict[Path, int]:
    return {
        Path(f"/proc/sys/net/{family}/neigh/default/{name}"): factor
        for family in ("ipv4", "ipv6")
        for name, factor in zip(LIMITS, FACTORS, strict=True)
    }


def _is_adjustable(limit: Path) -> bool:
    return os.access(limit, os.W_OK)


def _lock() -> Path:
    return PLACE.with_suffix(".lock")


def _read() -> _Record:
    """Return what is kept, without the needs of directories that have no lab any more because somebody removed them."""
    try:
        record = _Record(**json.loads(PLACE.read_text()))
    except (OSError, ValueError, TypeError):
        return _Record()
    record.needs = {state: entries for state, entries in record.needs.items() if _has_labs(Path(state))}
    return record


def _has_labs(state: Path) -> bool:
    try:
        return any((state / "labs").iterdir())
    except OSError:
        return False
