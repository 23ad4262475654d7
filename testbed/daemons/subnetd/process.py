"""The process of a subnet's wires: frames of HCAs through the native data path, tables as they are told, counters for
whoever asks.

It ends on SIGTERM, SIGINT or when it is asked to. Commands are `status`, `counters`, `deadlock`, `set_links`,
`set_leak`, `tables` and `shutdown`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import select
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

from testbed.daemons.kit import configuration
from testbed.daemons.kit.control import ControlServer, remove_socket
from testbed.daemons.subnetd.adapters import LONGEST_FRAME, Adapters, HcaConnection
from testbed.daemons.subnetd.captures import FrameCaptures
from testbed.daemons.subnetd.description import WiresDescription
from testbed.daemons.subnetd.errors import WiresError
from testbed.daemons.subnetd.questions import PERFORMANCE_SOCKET, Questions
from testbed.protocols.errors import UsageError
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.local_routing import FECN, GLOBAL, GRH_BYTES, LRH_BYTES, VCRC_BYTES
from testbed.protocols.infiniband.performance import PerformanceAgent
from testbed.protocols.infiniband.subnet import Subnet
from testbed.protocols.infiniband.tables import keys_of, set_tables

DESCRIPTION_NAME = "wires.json"
SUBNET_NAME = "subnet.json"
SOCKET_NAME = "wires.sock"
_SLID_AT = 6
_VARIANT_AT = 4
_LONGEST_SLEEP_S = 3600.0
_LOOK_S = 0.5
"""While no frame can move, the process looks so often whether a program has gone."""
_STILL = 16
"""After nothing has moved for so many times what a frame and a credit need on the slowest link, lanes that wait for
each other are told of as a deadlock."""
_DIRECT = ("rcv_switch_relay_errors", "xmit_discards", "xmit_constraint_errors", "rcv_constraint_errors")
_COUNTED = (
    *("link_downed", "rcv_errors", *_DIRECT, "buffer_overruns", "vl15_dropped"),
    *("xmit_data", "rcv_data", "xmit_pkts", "rcv_pkts"),
)
"""The counters of the agent that the data path has by the same name; those of physical errors stay at zero."""


@dataclass(slots=True)
class _UnderWay:
    connection: HcaConnection
    frame: bytes
    waits: bool = True
    """It is in the queue of its connection."""


@dataclass(slots=True)
class WiresLateness:
    """The lateness of what was due. Whatever a frame does within the fabric has its own time all the same: programs are
    told late, and given frames late."""

    turns: int = 0
    sum_ns: int = 0
    most_ns: int = 0

    def note(self, late_ns: int) -> None:
        """Count a turn."""
        self.turns += 1
        self.sum_ns += late_ns
        self.most_ns = max(self.most_ns, late_ns)


def tables_digest(subnet: Subnet) -> str:
    """Return a word that two subnets have in common where all their tables are the same."""
    tables = (sorted(subnet.lfts.items()), subnet.sl2vl, subnet.vl_high, subnet.vl_low, subnet.partitions)
    return hashlib.sha256(repr(tables).encode()).hexdigest()[:16]


class WiresProcess:
    """Owns the sockets in its run directory, whose `wires.json` and `subnet.json` say what it is."""

    def __init__(self, run_directory: Path) -> None:
        """Raises `UsageError`, `ValueError`, `OSError` for what it cannot be."""
        self._run = run_directory
        self._description = configuration.read(run_directory / DESCRIPTION_NAME, WiresDescription)
        self._subnet = self._read_subnet()
        self._path = self._description.build(self._subnet)
        self._rates = {
            channel: max(1, link.rate_bps // self._description.time_scale)
            for link in self._description.links
            for channel in ((link.a, link.a_port), (link.b, link.b_port))
        }
        self._far_ends = {
            near: far
            for link in self._description.links
            for near, far in permutations(((link.a, link.a_port), (link.b, link.b_port)))
        }
        self._down: set[tuple[str, int]] = set()
        self._leaks: dict[tuple[str, int, int], float] = {}
        """The share of its credits that a lane lacks, by node, port and VL."""
        self._directory = os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._epoll = select.epoll()
        self._control = ControlServer(self._directory, SOCKET_NAME, self._handle, self._epoll)
        hellos = {hca.name: partial(self._hello, hca.name) for hca in self._subnet.hcas}
        self._adapters = Adapters(self._directory, hellos, self._epoll, self._send, self._free)
        self._agent = PerformanceAgent(self._path.nodes, self._counters)
        self._questions = Questions(self._directory, self._agent.answer, self._epoll)
        self._captures = FrameCaptures(self._directory, self._epoll, self._path.watch)
        self._under_way: dict[int, _UnderWay] = {}
        self._lost: dict[str, int] = {}
        self._token = 0
        self._changes = 0
        self._due: int = binding.NEVER
        """When something was to be done next, as it was known last."""
        self._moved_ns = time.monotonic_ns()
        """When something was done last."""
        self._patience_ns = _STILL * self._description.longest_step_ns
        self._late = WiresLateness()
        self._since_ns = time.monotonic_ns()

    def _read_subnet(self) -> Subnet:
        return Subnet.from_json((self._run / SUBNET_NAME).read_text())

    def _hello(self, hca: str) -> Mapping[str, Any]:
        keys, lid = keys_of(self._subnet, hca), self._subnet.nodes[hca].lid
        return {
            "hca": hca,
            "lid": lid,
            "rate_bps": self._rates.get((hca, 1), 0),
            "time_scale": self._description.time_scale,
            "pkeys": list(keys),
            "lanes": list(self._subnet.sl2vl),
            "sls": {
                str(to): sl for (source, to), sl in self._subnet.sls.items() if source == self._subnet.nodes[hca].lid
            },
        }

    def run(self) -> None:
        """Carry frames until the end."""
        self._control.catch_signals()
        try:
            while not self._control.ending:
                due = self._turn()
                left_s = (due - time.monotonic_ns()) / 1e9 if due != binding.NEVER else _LONGEST_SLEEP_S
                if due == binding.NEVER and self._path.in_flight:
                    left_s = _LOOK_S
                    if self._adapters.has_gone():
                        self._free()
                for descriptor, _ in self._epoll.poll(min(_LONGEST_SLEEP_S, max(0.0, left_s))):
                    self._serve(descriptor)
        finally:
            self._end()

    def _serve(self, descriptor: int) -> None:
        if not any(each.serve(descriptor) for each in (self._adapters, self._questions, self._captures)):
            self._turn()
            self._control.serve(descriptor)

    def _turn(self) -> int:
        """Do what is due; when the next thing is comes back."""
        self._advance(time.monotonic_ns())
        for notice in self._path.notices():
            one = self._under_way.get(notice.token)
            if one is None:
                continue
            if notice.kind in (binding.LEAVES, binding.COMES):
                self._captures.take(notice, _on_link(one.frame, notice.vl, notice.fecn))
                continue
            if one.waits:  # it has left, or was lost before it did
                one.waits = False
                self._adapters.left(one.connection)
            if notice.kind == binding.DELIVERED:
                del self._under_way[notice.token]
                vl = self._subnet.sl2vl[one.frame[1] >> 4]
                self._adapters.deliver(notice.node, _on_link(one.frame, vl, notice.fecn))
            elif notice.kind == binding.LOST:
                del self._under_way[notice.token]
                self._lost[notice.cause] = self._lost.get(notice.cause, 0) + 1
        return self._due

    def _advance(self, now: int) -> None:
        if self._due <= now:
            self._late.note(now - self._due)
            self._moved_ns = now
        self._due = self._path.run(now, stops=False)

    def _send(self, connection: HcaConnection, frame: bytes) -> None:
        """Let an HCA send what its program gave it, where its own address is in it."""
        adapter = connection.adapter
        lid = self._subnet.nodes[adapter.name].lid
        if len(frame) > LONGEST_FRAME or int.from_bytes(frame[_SLID_AT : _SLID_AT + 2], "big") != lid:
            adapter.counts["refused"] += 1
            return
        self._token += 1
        adapter.counts["sent"] += 1
        connection.queued += 1
        self._under_way[self._token] = _UnderWay(connection, frame)
        header, size, now = frame[: binding.HEADER_BYTES], len(frame) + VCRC_BYTES, time.monotonic_ns()
        self._advance(now)  # what was due before comes before
        self._path.offer(adapter.name, header, size, self._token, now)

    # --- counters ----------------------------------------------------------------------------------------

    def _counters(self, node: str, port: int) -> Mapping[str, int]:
        """Return the counters of a port as the performance agent has them: waiting in the time of four bytes."""
        self._turn()
        self._path.pass_time(time.monotonic_ns())
        found = self._path.counters(node, port)
        rate = self._rates.get((node, port), 0)
        counted = {name: found[name] for name in _COUNTED}
        counted["xmit_wait"] = _words(found["xmit_wait_ns"], rate)
        for vl in range(self._path.vls):
            lane = self._path.lane(node, port, vl)
            counted[f"vl_packets_{vl}"] = lane["rcv_pkts"]
            counted[f"vl_data_{vl}"] = lane["rcv_bytes"] // 4
            counted[f"vl_xmit_wait_{vl}"] = _words(lane["xmit_wait_ns"], rate)
        return counted

    # --- commands ----------------------------------------------------------------------------------------

    def _handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request:
            case {"command": "status"}:
                return self._status()
            case {"command": "counters", "anew": bool(anew)}:
                return self._read_all(anew)
            case {"command": "deadlock"}:
                return self._deadlock()
            case {"command": "set_links", "node": str(node), "ports": [*ports], "up": bool(up)}:
                return self._set_links(node, ports, up)
            case {"command": "set_leak", "node": str(node), "port": int(port), "vl": int(vl), "share": share}:
                return self._set_leak(node, port, vl, share)
            case {"command": "tables"}:
                return self._set_tables()
            case {"command": "shutdown"}:
                self._control.ending = True
                return {}
            case _:
                raise WiresError("no such command, or not with these fields")

    def _read_all(self, anew: bool) -> dict[str, Any]:
        """Return the counters of all ports; with `anew` the peaks begin at what is there now."""
        due = self._turn()
        now = time.monotonic_ns()
        self._path.pass_time(now)
        if anew:
            self._path.forget_peaks()
            self._late = WiresLateness()
        stuck = self._path.in_flight if due == binding.NEVER and self._path.deadlock() else 0
        return {
            "at_ns": now,
            "engine": self._subnet.engine,
            "frames": self._path.hops,
            "stuck": stuck,
            "still_ns": now - self._moved_ns if stuck else 0,
            "lost": self._path.lost(),
            "late": asdict(self._late),
            "ports": [
                {"node": one.node, "port": one.port, "counters": one.counters, "lanes": list(one.lanes.values())}
                for one in self._path.readings()
            ],
        }

    def _deadlock(self) -> dict[str, Any]:
        """Return the lanes that wait for each other in a circle, and for how long nothing has moved; no lanes where
        that is not long yet."""
        stuck = self._turn() == binding.NEVER and self._path.in_flight
        still_ns = time.monotonic_ns() - self._moved_ns
        lanes = self._path.deadlock() if stuck and still_ns >= self._patience_ns else ()
        return {"lanes": [str(one) for one in lanes], "still_ns": still_ns}

    def _set_links(self, node: str, ports: list[Any], up: bool) -> Mapping[str, Any]:
        """Have the links at some ports of a node go down, or come back, at once."""
        self._path.pass_time(time.monotonic_ns())  # whoever waits has waited until now
        try:
            for port in ports:
                self._path.set_link(node, int(port), up)
                ends = {(node, int(port)), self._far_ends.get((node, int(port)), (node, int(port)))}
                (self._down.difference_update if up else self._down.update)(ends)
                self._leaks = {lane: share for lane, share in self._leaks.items() if lane[:2] not in ends}
        except (UsageError, TypeError, ValueError) as error:
            raise WiresError(str(error)) from error
        return {}

    def _set_leak(self, node: str, port: int, vl: int, share: Any) -> Mapping[str, Any]:
        """Let what a port sends on a VL lack a share of its credits, 0: none any more."""
        self._path.pass_time(time.monotonic_ns())
        try:
            self._path.set_leak(node, port, vl, float(share))
        except (UsageError, TypeError, ValueError) as error:
            raise WiresError(str(error)) from error
        self._leaks |= {(node, port, vl): float(share)}
        if not share:
            del self._leaks[node, port, vl]
        return {}

    def _free(self) -> None:
        """Lose all frames that are under way where each of them waits for the buffer of another one: a program has
        gone, and whoever comes next would wait behind what it has left."""
        if self._turn() != binding.NEVER or not self._path.deadlock():
            return
        links = [
            link
            for link in self._description.links
            if (link.a, link.a_port) in self._subnet.peers and (link.a, link.a_port) not in self._down
        ]
        for up in (False, True):  # all at once: what one frees would be taken by what another one holds
            for link in links:
                self._path.set_link(link.a, link.a_port, up)

    def _set_tables(self) -> Mapping[str, Any]:
        """Put the tables of `subnet.json` in force, which has been written anew."""
        try:
            subnet = self._read_subnet()
            if {name: node.lid for name, node in subnet.nodes.items()} != {
                name: node.lid for name, node in self._subnet.nodes.items()
            }:
                raise WiresError(
                    "nodes have other LIDs than before, and the wires must be started anew",
                    hint="`testbed apply --repair` does it",
                )
            set_tables(self._path, subnet)
        except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
            raise WiresError(f"no tables of this subnet: {error}") from error
        self._subnet = subnet
        self._changes += 1
        return {"tables": tables_digest(subnet)}

    def _status(self) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "pid": os.getpid(),
            "time_scale": self._description.time_scale,
            "tables": tables_digest(self._subnet),
            "changes": self._changes,
            "down": sorted(f"{node}:{port}" for node, port in self._down),
            "up_ns": time.monotonic_ns() - self._since_ns,
            "cpu_ns": int((used.ru_utime + used.ru_stime) * 1e9),
            "leaks": [[*lane, share] for lane, share in sorted(self._leaks.items())],
            "in_flight": self._path.in_flight,
            "hops": self._path.hops,
            "lost": dict(sorted(self._lost.items())),
            "hcas": {
                adapter.name: adapter.counts | {"open": bool(adapter.connections)}
                for adapter in self._adapters.by_name.values()
            },
        }

    def _end(self) -> None:
        self._adapters.close()
        self._questions.close()
        self._captures.close()
        self._control.close()
        self._path.close()
        self._epoll.close()
        with contextlib.suppress(OSError):
            remove_socket(self._directory, PERFORMANCE_SOCKET)
        os.close(self._directory)


def _on_link(frame: bytes, vl: int, fecn: bool) -> bytearray:
    """Return a frame as it is on a link: with the lane that it goes by, and its mark. The ICRC covers neither."""
    found = bytearray(frame)
    found[0] = vl << 4 | frame[0] & 0xF
    if fecn:
        found[LRH_BYTES + (GRH_BYTES if frame[1] & 3 == GLOBAL else 0) + _VARIANT_AT] |= FECN
    return found


def _words(ns: int, rate_bps: int) -> int:
    """The time of so many words of four bytes on a link."""
    return ns * rate_bps // 32_000_000_000
