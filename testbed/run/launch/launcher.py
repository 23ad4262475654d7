"""Starts a command as ranks on the hosts of a lab, and stays with them until the last one has ended.

One shim for each host starts and watches the ranks there (`host_shim`). This end is one loop over what all of them say,
and never waits for one of them. When a rank fails, all others get SIGTERM, and after a while SIGKILL; when a shim or
what carries the ranks' bytes ends, too. If this process is killed, the shims find their input at its end, and kill.
"""

from __future__ import annotations

import resource
import secrets
import select
import selectors
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.base.linux.processes import Process, kill_processes, processes_in
from testbed.base.names import first_few
from testbed.lab.core.deploy.congestion_control import read_congestion_controls
from testbed.lab.core.deploy.records.usage import using
from testbed.lab.core.model import BACKEND
from testbed.run.launch import host_shim
from testbed.run.launch.congestion import SETTING, congestion_control
from testbed.run.launch.environment import LAUNCH_VARIABLE, ProgramRanks, environment_of
from testbed.run.launch.options import LaunchOptions, LaunchRefused
from testbed.run.launch.pmi import PmiAbort, PmiError, PmiServer
from testbed.run.launch.ranks import RankPlace, place_ranks, process_mapping
from testbed.run.launch.result import INTERRUPTED, TIMED_OUT, UNDONE, LaunchEnd, LaunchResult, RankEnd, RankLine
from testbed.run.launch.shims import HostShim
from testbed.run.launch.traffic import TrafficWatch
from testbed.run.launch.transports import TCP, Served, find_transport

if TYPE_CHECKING:
    from testbed.base.interrupt import Interrupt
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.run.launch.kills import HostKills

GRACE_S = 2.0
"""The time that ranks have to end by themselves after SIGTERM, and their shims after SIGKILL."""
PMI_PATIENCE_S = 300.0
"""The time that ranks wait at a barrier of PMI for one that has not called MPI_Init: a slow start takes a minute."""
MOST_START_BYTES = host_shim.MAX_FRAME_BYTES // 4
"""The orders to start ranks that one frame has, beyond the first of them."""
MOST_LINE_BYTES = 1 << 16
"""A line that is longer is handed on in parts."""
_WITH_OTHERS = "ended with the others"


def ignore_lines(line: RankLine) -> None:
    """Do nothing with what ranks print."""
    del line


def launch_ranks(
    lab: RunningLab,
    command: Sequence[str],
    options: LaunchOptions,
    *,
    on_line: Callable[[RankLine], None] = ignore_lines,
    on_started: Callable[[Sequence[RankPlace]], None] = lambda _: None,
    interrupt: Interrupt | None = None,
    kills: HostKills | None = None,
) -> LaunchResult:
    """Start a command as ranks, and return what came of it when the last of them has ended.

    `on_line` is called with every line that a rank prints, `on_started` once, when all run; both in this thread, and
    they must be quick. `interrupt` ends all ranks, from any thread or a signal handler, and `kills` those of one host.
    Raises `LaunchRefused`, `CapabilityError` and `DriverError` before a rank was started; what becomes of ranks is in
    the result.
    """
    if not command:
        raise LaunchRefused("no command to start")
    serve = find_transport(options.transport)
    seen = lab if options.nics else lab.of_network(BACKEND)
    places = place_ranks(seen.model, seen.plan, options)
    hosts = list(dict.fromkeys(place.host for place in places))
    nics = list({(place.nic.node, place.nic.name): place.nic for place in places}.values())
    ranks = ProgramRanks(lab=lab.name, k=lab.plan.k, launch=f"{lab.name}-{secrets.token_hex(4)}", places=places)
    with ExitStack() as held:
        held.enter_context(using(lab.state_directory, lab.name))
        before = held.enter_context(congestion_control(lab, hosts, options.cc))
        found = {*read_congestion_controls(lab, hosts).values()}
        served = held.enter_context(serve(seen, nics))
        watch = TrafficWatch(seen, hosts)
        launch = _Launch(lab, ranks, command, options, served, on_line, on_started)
        launch.run(before, interrupt, kills)
        sent_again = served.sent_again()
        carried, above = watch.read(nics)
        return LaunchResult(
            lab=lab.name,
            k=lab.plan.k,
            places=places,
            ranks=tuple(launch.ends[place.rank] for place in places),
            exit_code=launch.exit_code,
            failure=launch.failure,
            ended_by=launch.ended_by,
            started_s=launch.started_s,
            ended_s=max(end.ended_s for end in launch.ends.values()),
            nics=carried,
            uplinks=above,
            sent_again=watch.sent_again() if options.transport == TCP else sent_again,
            congestion_control=found.pop() if len(found) == 1 else "",
            transport=options.transport,
            cpu_s=launch.cpu_s,
        )


class _Launch:
    """The ranks of one program, from the start of the first to the end of the last."""

    def __init__(
        self,
        lab: RunningLab,
        ranks: ProgramRanks,
        command: Sequence[str],
        options: LaunchOptions,
        served: Served,
        on_line: Callable[[RankLine], None],
        on_started: Callable[[Sequence[RankPlace]], None],
    ) -> None:
        self._lab = lab
        self._ranks = ranks
        self._command = list(command)
        self._options = options
        self._served = served
        self._on_line = on_line
        self._on_started = on_started
        self._places = {place.rank: place for place in ranks.places}
        self._pmi = PmiServer(size=len(self._places), mapping=process_mapping(ranks.places)) if options.pmi else None
        self._waits_s: float | None = None
        """Since when ranks wait at a barrier for one that has not called MPI_Init."""
        self._shims: dict[str, HostShim] = {}
        self._lost: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._begun: dict[int, float] = {}
        self._output: dict[tuple[int, bool], bytes] = defaultdict(bytes)
        self._deadline: float | None = None
        self._next = self._terminate
        """The next thing to do, at the deadline."""
        self.started_s = time.monotonic()
        self.ends: dict[int, RankEnd] = {}
        self.exit_code = 0
        self.failure = ""
        self.ended_by = LaunchEnd.SELF
        self.cpu_s = 0.0

    # --- from begin to end ---------------------------------------------------------------------------

    def run(self, restore: Mapping[str, str], interrupt: Interrupt | None, kills: HostKills | None) -> None:
        """Start the ranks, and return when all have ended and nothing of them is left.

        `restore` is the congestion control that each host is to have again, in which it was changed.
        """
        spent_s = _children_s()
        try:
            if interrupt is not None:
                self._selector.register(interrupt, selectors.EVENT_READ, (self._on_interrupt, interrupt))
            for name, descriptor in self._served.watched.items():
                self._selector.register(descriptor, selectors.EVENT_READ, (self._on_served_end, name, descriptor))
            if kills is not None:
                self._selector.register(kills, selectors.EVENT_READ, (self._on_kills, kills))
            self._start(restore)
            if kills is not None:
                kills.serve(self._shims)
            if self._options.timeout_s is not None:
                self._deadline, self._next = self.started_s + self._options.timeout_s, self._on_timeout
            while len(self.ends) < len(self._places):
                self._turn()
        except BaseException:
            self._on_line = ignore_lines  # it may be what failed
            self._signal(signal.SIGKILL)
            raise
        finally:
            if kills is not None:
                kills.serve(())
            self._end_shims()
            self.cpu_s = _children_s() - spent_s

    def _start(self, restore: Mapping[str, str]) -> None:
        by_host: dict[str, list[RankPlace]] = defaultdict(list)
        for place in self._places.values():
            by_host[place.host].append(place)
        self.started_s = time.monotonic()
        for host, places in by_host.items():
            shim = HostShim.start(self._lab, host, [place.rank for place in places])
            self._shims[host] = shim
            self._selector.register(shim.output, selectors.EVENT_READ, (self._on_frames, shim))
            self._selector.register(shim.errors, selectors.EVENT_READ, (self._on_errors, shim))
            settings = {str(SETTING): restore[host]} if host in restore else {}
            for content in start_frames(map(self._order, places), settings):
                self._send(shim, host_shim.START, 0, content)

    def _order(self, place: RankPlace) -> dict[str, Any]:
        """Return what a shim is told of a rank: the fields of `RankToStart`."""
        env = environment_of(self._ranks, place) | dict(self._served.environment(place.nic))
        if self._pmi is not None:
            env |= {"PMI_RANK": str(place.rank), "PMI_SIZE": str(len(self._places)), "PMI_SPAWNED": "0"}
        in_container = self._lab.runtime(place.host) is not None
        return {
            "rank": place.rank,
            "argv": self._command,
            "env": env | dict(self._options.env),
            "cwd": None if in_container else str(self._options.directory or Path.cwd()),
            "pmi": self._pmi is not None,
        }

    def _turn(self) -> None:
        """Wait for what comes next, and do what there is to do."""
        patience_s = None if self._waits_s is None or self.failure else self._waits_s + PMI_PATIENCE_S
        due = [at for at in (self._deadline, patience_s) if at is not None]
        left = max(0.0, min(due) - time.monotonic()) if due else None
        for key, events in self._selector.select(left):
            if events and self._is_heard(key.fileobj):  # what came before it may have ended that
                what, *arguments = key.data
                what(*arguments)
        if patience_s is not None and self._waits_s is not None and time.monotonic() >= patience_s:
            self._fail(1, f"{self._barrier_words()} for {PMI_PATIENCE_S:g} s")
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._next()

    def _is_heard(self, source: Any) -> bool:
        try:
            return source in self._selector.get_map()
        except ValueError:  # it is closed
            return False

    def _forget(self, *sources: Any) -> None:
        for source in sources:
            if self._is_heard(source):
                self._selector.unregister(source)

    def _end_shims(self) -> None:
        """Have all shims kill what is left, and end; then look for what got away from one that was lost."""
        for shim in self._shims.values():
            shim.release()
        end = time.monotonic() + GRACE_S
        try:
            for shim in self._shims.values():
                if shim.host not in self._lost:
                    self._read_to_the_end(shim, end)
            for key in list(self._output):
                self._flush_line(*key)
        finally:  # whoever is told of lines may fail
            self._selector.close()
            for shim in self._shims.values():
                if shim.close(max(0.0, end - time.monotonic())):
                    self._lost.add(shim.host)
            if uncertain := [host for host in self._shims if host in self._lost or self._lab.runtime(host) is not None]:
                sweep(self._lab, uncertain, self._ranks.launch)

    def _read_to_the_end(self, shim: HostShim, end: float) -> None:
        """Hand on what a shim still has of what ranks printed: it cannot end before it has been read."""
        while (left := end - time.monotonic()) > 0 and select.select([shim.output], [], [], left)[0]:
            try:
                frames = shim.receive()
            except ValueError:  # somebody else prints there
                return
            if frames is None:
                return
            for kind, rank, data in frames:
                if kind in (host_shim.OUT, host_shim.ERR):
                    self._print(rank, kind == host_shim.ERR, data)

    # --- what comes of the shims ------------------------------------------------------------------------

    def _send(self, shim: HostShim, kind: bytes, rank: int, data: bytes) -> None:
        shim.send(kind, rank, data)
        self._on_room(shim)

    def _on_room(self, shim: HostShim) -> None:
        """Write on, and have it told when there is room for more."""
        waits = shim.flush()
        known = self._is_heard(shim.input)
        if waits and not known:
            self._selector.register(shim.input, selectors.EVENT_WRITE, (self._on_room, shim))
        elif known and not waits:
            self._forget(shim.input)

    def _on_errors(self, shim: HostShim) -> None:
        if not shim.hear_errors():
            self._forget(shim.errors)

    def _on_frames(self, shim: HostShim) -> None:
        try:
            frames = shim.receive()
        except ValueError:  # somebody else prints there
            frames = None
        if frames is None:
            self._on_lost(shim)
            return
        for kind, rank, data in frames:
            if rank not in self._places:
                continue
            if kind == host_shim.STARTED:
                self._begun[rank] = time.monotonic()
                self._tell_started()
            elif kind in (host_shim.OUT, host_shim.ERR):
                self._print(rank, kind == host_shim.ERR, data)
            elif kind == host_shim.PMI:
                self._on_pmi(rank, data)
            elif kind == host_shim.ENDED:
                (status,) = host_shim.STATUS.unpack_from(data)
                self._on_end(rank, status, data[host_shim.STATUS.size :].decode(errors="replace"))

    def _tell_started(self) -> None:
        if len(self._begun) == len(self._places):
            self._on_started(self._ranks.places)

    def _on_lost(self, shim: HostShim) -> None:
        """A shim has ended before it was told to: its ranks went with it."""
        self._forget(shim.input, shim.output, shim.errors)
        self._lost.add(shim.host)
        status = shim.close(GRACE_S)
        why = f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
        whose = _listed([rank for rank in shim.ranks if rank not in self.ends])
        words = f": {shim.words}" if shim.words else ""
        self._fail(UNDONE, f"{shim.host}: what starts ranks there {why}, and with it {whose}{words}", LaunchEnd.LOST)
        for rank in shim.ranks:
            if rank not in self.ends:
                self._note_end(rank, -signal.SIGKILL, "went with its host's shim")

    def _on_end(self, rank: int, status: int, why: str) -> None:
        place, failing = self._places[rank], bool(self.failure)
        unfinished = self._pmi is not None and self._pmi.is_connected(rank) and len(self._places) > 1
        if why:
            self._fail(status, f"rank {rank} on {place.host}: {why}")
        elif status < 0:
            self._fail(128 - status, f"rank {rank} on {place.host} was killed by signal {-status}")
        elif status:
            self._fail(status, f"rank {rank} on {place.host} ended with {status}")
        elif unfinished:
            self._fail(1, f"rank {rank} on {place.host} ended without MPI_Finalize, and others may wait for it")
        self._note_end(rank, status, why or (_WITH_OTHERS if failing and status else ""))
        if self._pmi is not None:
            self._pmi.on_end(rank)
            self._look_at_barrier(self._pmi)

    def _note_end(self, rank: int, status: int, reason: str) -> None:
        now = time.monotonic()
        if rank not in self.ends:
            self.ends[rank] = RankEnd(
                rank=rank,
                host=self._places[rank].host,
                status=status,
                started_s=self._begun.get(rank, now),
                ended_s=now,
                reason=reason,
            )

    def _on_pmi(self, rank: int, data: bytes) -> None:
        if self._pmi is None:
            return
        try:
            for item in self._pmi.receive(rank, data):
                if isinstance(item, PmiAbort):
                    said = f" ({item.message})" if item.message else ""
                    code = item.exit_code & 0xFF or 1
                    self._fail(
                        code, f"rank {rank} on {self._places[rank].host} called MPI_Abort: {item.exit_code}{said}"
                    )
                elif (shim := self._shims.get(self._places[item.rank].host)) is not None:
                    self._send(shim, host_shim.PMI, item.rank, item.line)
        except PmiError as error:
            self._fail(1, f"rank {rank} on {self._places[rank].host} does not speak PMI-1: {error}")
        self._look_at_barrier(self._pmi)

    def _look_at_barrier(self, pmi: PmiServer) -> None:
        """End all where a barrier waits for a rank that has ended, and note where it waits for one that may be slow."""
        if lost := pmi.lost:
            never = set(pmi.not_begun)
            how = "without MPI_Init" if never.issuperset(lost) else "meanwhile"
            self._fail(1, f"{_listed(lost)} ended {how}, and {_listed(pmi.waiting)} would wait at a barrier for ever")
        if not pmi.waits_for_start:
            self._waits_s = None
        elif self._waits_s is None:
            self._waits_s = time.monotonic()

    def _barrier_words(self) -> str:
        """Say who waits at a barrier for ranks that have not begun; "" where nobody does."""
        if self._pmi is None or not (missing := self._pmi.not_begun):
            return ""
        return f"{_listed(self._pmi.waiting)} waited at a barrier for {_listed(missing)} to call MPI_Init"

    # --- what ranks print -------------------------------------------------------------------------------

    def _print(self, rank: int, is_error: bool, data: bytes) -> None:
        *lines, rest = (self._output[rank, is_error] + data).split(b"\n")
        for line in lines:
            self._tell_line(rank, is_error, line)
        while len(rest) > MOST_LINE_BYTES:
            self._tell_line(rank, is_error, rest[:MOST_LINE_BYTES])
            rest = rest[MOST_LINE_BYTES:]
        self._output[rank, is_error] = rest

    def _flush_line(self, rank: int, is_error: bool) -> None:
        if rest := self._output.pop((rank, is_error)):
            self._tell_line(rank, is_error, rest)

    def _tell_line(self, rank: int, is_error: bool, line: bytes) -> None:
        self._on_line(RankLine(rank, line.decode(errors="replace").rstrip("\r"), is_error, time.monotonic()))

    # --- the end of all ---------------------------------------------------------------------------------

    def _fail(self, exit_code: int, failure: str, ended_by: LaunchEnd = LaunchEnd.SELF) -> None:
        """Note who failed, if nobody did before, and have all others end."""
        if not self.failure:
            self.exit_code, self.failure, self.ended_by = exit_code, failure, ended_by
            self._terminate()

    def _on_interrupt(self, interrupt: Interrupt) -> None:
        self._forget(interrupt)
        self._fail(INTERRUPTED, "interrupted", LaunchEnd.INTERRUPTED)

    def _on_kills(self, kills: HostKills) -> None:
        for host in kills.take():
            self._send(self._shims[host], host_shim.SIGNAL, 0, bytes([signal.SIGKILL]))

    def _on_timeout(self) -> None:
        late = [rank for rank in self._places if rank not in self.ends]
        words = f": {waits}" if (waits := self._barrier_words()) else ""
        said = f"{_listed(late)} had not ended after {self._options.timeout_s:g} s{words}"
        self._fail(TIMED_OUT, said, LaunchEnd.TIMEOUT)

    def _on_served_end(self, name: str, descriptor: int) -> None:
        self._forget(descriptor)
        self._fail(UNDONE, f"{name} has ended, without which ranks reach nobody", LaunchEnd.SERVED)

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self._deadline, self._next = time.monotonic() + GRACE_S, self._kill

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._deadline, self._next = time.monotonic() + GRACE_S, self._give_up

    def _give_up(self) -> None:
        """A shim does not tell that its ranks have ended: it is killed, and they go with it."""
        for shim in self._shims.values():
            shim.process.kill()
        for rank in self._places:
            self._note_end(rank, -signal.SIGKILL, _WITH_OTHERS)

    def _signal(self, number: int) -> None:
        for shim in self._shims.values():
            if shim.host not in self._lost:
                self._send(shim, host_shim.SIGNAL, 0, bytes([number]))


def sweep(lab: RunningLab, hosts: Sequence[str], launch: str) -> list[Process]:
    """Kill what a launch has left in these hosts, by the variable that all of it has in its environment."""
    identities = {lab.identities[host] for host in hosts if host in lab.identities}
    mark = f"{LAUNCH_VARIABLE}={launch}".encode()
    found = []
    for process in processes_in(identities):
        with suppress(OSError):
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
    with suppress(TestbedError):
        kill_processes(found, timeout_s=GRACE_S)
    return found


def _children_s() -> float:
    """Return the CPU time of our children that have ended, and of theirs: shims reap their ranks."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _listed(ranks: Sequence[int]) -> str:
    if not ranks:
        return "no rank"
    return f"rank{'s' * (len(ranks) > 1)} {first_few(ranks, 8)}"


def start_frames(orders: Iterable[Mapping[str, Any]], restore: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the contents of the frames that start ranks: as many as it takes, since an environment has kilobytes."""
    import json

    def content(ranks: Sequence[bytes]) -> bytes:
        return b'{"ranks": [%s], "restore": %s}' % (b", ".join(ranks), json.dumps(restore).encode())

    part: list[bytes] = []
    size = 0
    for order in orders:
        encoded = json.dumps(order).encode()
        if part and size + len(encoded) > MOST_START_BYTES:
            yield content(part)
            part, size = [], 0
        part.append(encoded)
        size += len(encoded)
    yield content(part)
