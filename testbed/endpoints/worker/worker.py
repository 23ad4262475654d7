"""A worker: it is given a program, sets up its traffic, runs it from a common start on, and reports what happened.

Commands come in and events go out, one JSON object a line:

    prepare   program -> listening: it has checked the program, filled its buffers and can be reached
    connect   -> ready: every channel from and to here is there
    start     at_ns (CLOCK_MONOTONIC) -> progress (bytes arrived so far, the first step that has not ended), ..., done
    stop      -> report: what it has measured, the check of its data included; nothing moves any more. Of arrays that
                 all ranks share, the first rank's is checked, and the others' digests are told. `failure` says what
                 is wrong with data that only now can be looked at
    count     of (pairs of collective and rank) -> counted: the wrong elements of each, after `stop`
    release   -> released: sockets and buffers are gone, and it can be given another program

At its beginning it says `hello`. `failed` (with a reason) comes whenever it cannot go on; what it has measured can
still be asked for by `stop`. A command that makes no sense is `refused` (with a reason) and changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from testbed.base.program_errors import ProgramError, TrafficError
from testbed.base.version import __version__
from testbed.endpoints.worker.curves import Curves
from testbed.endpoints.worker.domain import Domain, Domains
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Step
from testbed.endpoints.worker.program_json import decode_program
from testbed.endpoints.worker.rings import StreamedRings
from testbed.endpoints.worker.schedule import Schedule
from testbed.endpoints.worker.traffic import Traffic
from testbed.endpoints.worker.transport_registry import worker_transport
from testbed.workload.steps import Combine

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers
    from testbed.endpoints.worker.http.request_traffic import RequestTraffic

PROGRESS_NS = 200_000_000
Event = dict[str, Any]


class Worker:
    """Driven by `loop`: call `turn` after each of its turns, and have the next end at `deadline` at the latest.

    Workers of one process that may be in one scale-up domain have their `domains` in common.
    """

    def __init__(self, loop: WatchingLoop, tell: Callable[[Event], None], domains: Domains | None = None) -> None:
        self.loop = loop
        self._domains = Domains() if domains is None else domains
        self._tell = tell
        self._run: ProgramRun | None = None

    @property
    def buffers(self) -> CollectiveBuffers | None:
        """The buffers of its program's collectives, if it has any."""
        return None if self._run is None else self._run.buffers

    def greet(self) -> None:
        self._tell({"event": "hello", "version": __version__, "pid": os.getpid()})

    def execute(self, command: object) -> None:
        """Carry out a command. Raises nothing, whatever it is."""
        try:
            self._execute(command)
        except ProgramError as error:
            self._tell({"event": "refused", "reason": str(error)})

    def _execute(self, command: object) -> None:
        if not isinstance(command, dict):
            raise ProgramError("", "a command is an object")
        run = self._run
        match command.get("do"):
            case "prepare" if run is None:
                program = decode_program(command.get("program"))
                self._run = ProgramRun(program, self.loop, self._tell, domains=self._domains)
                self._run.prepare()
            case "connect" if run is not None:
                run.connect()
            case "start" if run is not None:
                at_ns = command.get("at_ns")
                if type(at_ns) is not int or not 0 <= at_ns < 1 << 63:
                    raise ProgramError("at_ns", f"{at_ns!r} is no time")
                run.start(at_ns)
            case "stop" if run is not None:
                self._tell({"event": "report", **run.stop()})
            case "count" if run is not None:
                self._tell({"event": "counted", "wrong": run.count(command.get("of"))})
            case "release":
                self.close()
                self._tell({"event": "released"})
            case other:
                raise ProgramError("do", f"{str(other)[:40]!r} cannot be done now")

    def turn(self) -> None:
        if self._run is not None:
            self._run.turn()

    def deadline(self) -> int | None:
        """Return when `turn` is to be called, though nothing has happened by then (ns of CLOCK_MONOTONIC)."""
        return None if self._run is None else self._run.deadline()

    def fail(self, reason: str, trace: str = "") -> None:
        """Say that it cannot go on, with the traceback where that is a mistake of ours."""
        self._tell({"event": "failed", "reason": reason, "trace": trace})

    def close(self) -> None:
        """Let go of whatever it is doing."""
        if self._run is not None:
            self._run.close()
            self._run = None


class ProgramRun:
    """One program, from its preparation to its release."""

    def __init__(
        self,
        program: Program,
        loop: WatchingLoop,
        tell: Callable[[Event], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
        domains: Domains | None = None,
    ) -> None:
        self._program = program
        self._loop = loop
        self._tell = tell
        self._clock_ns = clock_ns
        self._schedule = Schedule(program.steps, program.own)
        self._rings = StreamedRings(program.rings) if program.rings else None
        self._domains = Domains() if domains is None else domains
        self._inside = Domain(program.scale_up)
        self._curves = Curves(program.sample_ns)
        self.buffers: CollectiveBuffers | None = None
        self._traffic: Traffic | None = None
        self._requests: RequestTraffic | None = None
        self._arrived_ns: dict[int, int] = {}
        self._arrived_bytes = 0
        self._told_bytes = 0
        self._begin_ns = 0
        self._sample_at = 0
        self._progress_at = 0
        self._announce_ready = False
        self._running = False
        self._over = False
        """It has failed, or was stopped: nothing begins any more."""

    # --- commands ----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        try:
            self._inside = self._domains.join(self._program.scale_up, self._program.own, self)
            if self._program.collectives:
                from testbed.endpoints.worker.buffers import CollectiveBuffers  # numpy is half of a worker's start

                self.buffers = CollectiveBuffers(self._program)
            self._traffic = self._make_traffic()
            self._traffic.listen()
            if self._rings is not None:
                self._go_on_with_rings(self._rings, self._traffic)  # to be ready for what comes first
            if self._program.requests:
                self._requests = self._make_requests()
                self._requests.listen()
        except (TrafficError, MemoryError) as error:
            self.on_failed(str(error) or "there is not enough memory")
        else:
            self._tell({"event": "listening"})

    def _make_traffic(self) -> Traffic:
        transport = worker_transport(self._program.transport.kind)
        return transport.make_traffic(self._program, self._loop, self.buffers, self)

    def _make_requests(self) -> RequestTraffic:
        from testbed.endpoints.worker.http.request_traffic import RequestTraffic  # most programs have none

        return RequestTraffic(self._program, self._loop, self, self._clock_ns)

    def connect(self) -> None:
        if self._traffic is None or self._over or self._announce_ready or self._begin_ns:
            raise ProgramError("do", "there is nothing to connect")
        self._announce_ready = True
        try:
            if (packets := self._program.scale_up.packets) is not None and self._inside.packets is not None:
                self._inside.packets.open(packets.places, self._clock_ns())
            self._traffic.connect()
        except TrafficError as error:
            self.on_failed(error.message)

    def start(self, at_ns: int) -> None:
        if self._traffic is None or not self._traffic.ready or self._over or self._begin_ns:
            raise ProgramError("do", "it is not ready")
        self._begin_ns = at_ns
        self._sample_at = self._progress_at = at_ns
        self._running = True
        self._schedule.begin(at_ns)
        if self._requests is not None:
            self._requests.begin(at_ns)

    def stop(self) -> Event:
        """Return what was measured."""
        self._over = True
        self._running = False
        if self._traffic is not None and self._begin_ns:
            self._take_sample(self._clock_ns())
        failure = ""
        if self._traffic is not None:
            try:
                self._traffic.halt()
            except TrafficError as error:
                failure = error.message
        requests = self._requests
        left = self._left()
        if requests is not None:
            requests.halt()
        ends = [] if self._traffic is None else self._traffic.ends()
        buffers = None if self._schedule.left else self.buffers  # what is not whole is not checked
        started, arrived = self._schedule.started_ns, self._arrived_ns
        packets = self._inside.packets
        inside = None if packets is None else packets.report(self._program.own, self._begin_ns)
        if packets is not None:
            packets.close(self._program.own)
        return {
            "steps_left": left,
            "started": [list(started), [at_ns - self._begin_ns for at_ns in started.values()]],
            "arrived": [list(arrived), [at_ns - self._begin_ns for at_ns in arrived.values()]],
            "arrived_bytes": self._arrived_bytes,
            "wrong": [] if buffers is None else buffers.check(),
            "digests": [] if buffers is None else buffers.digests(),
            "channels": [
                {
                    "channel": end.channel,
                    "sent_bytes": end.sent_bytes,
                    "retransmits": end.retransmits,
                    "packets": end.packets,
                    "min_rtt_us": end.min_rtt_us,
                    "counters": dict(end.counters),
                    "moved": [list(end.moved), list(end.moved.values())],
                    "not_safe": [list(item) for item in end.not_safe],
                }
                for end in ends
            ],
            "samples": {
                str(end.channel): self._curves.columns(end.channel) for end in ends if end.sent_bytes is not None
            },
            "counters": {
                **({} if self._traffic is None else self._traffic.counters()),
                **({} if requests is None else requests.counters()),
            },
            "requests": None if requests is None else requests.report(),
            "scale_up": inside,
            "latest_timer_ns": self._schedule.latest_ns,
            "failure": failure,
        }

    def count(self, of: object) -> list[tuple[int, int, int]]:
        """The wrong elements of some ranks' arrays."""
        pairs: list[Any] = of if isinstance(of, list) else [of]
        if self.buffers is None or not self._over:
            raise ProgramError("do", "there is nothing to count")
        try:
            return self.buffers.count_wrong((index, rank) for index, rank in pairs)
        except (KeyError, TypeError, ValueError):
            raise ProgramError("of", "is no list of collectives and ranks of this host") from None

    def close(self) -> None:
        self._over = True
        self._inside.leave(self)
        if self._traffic is not None:
            self._traffic.close()
        if self._requests is not None:
            self._requests.close()

    # --- turns -------------------------------------------------------------------------------------------

    def turn(self) -> None:
        traffic = self._traffic
        if traffic is None or self._over:
            return
        now = self._clock_ns()
        try:
            traffic.turn(now)
            if self._announce_ready and traffic.ready and self._inside.is_ready(now):
                self._announce_ready = False
                self._tell({"event": "ready"})
            if self._requests is not None:
                self._requests.turn(now)
            if self._running:
                self._advance(traffic, now)
            elif self._begin_ns or self._announce_ready:
                self._inside.turn(now)  # others of the domain may not be done
        except TrafficError as error:
            self.on_failed(error.message)

    def _advance(self, traffic: Traffic, now: int) -> None:
        inside, rings = self._inside, self._rings
        while True:
            for step in self._schedule.take(now):
                if rings is not None and rings.has(step.number):
                    rings.begin(step.number)
                elif step.channel is None:
                    inside.send(step, self._schedule.started_ns[step.number])
                else:
                    traffic.send(step)
            if rings is not None:
                self._go_on_with_rings(rings, traffic)
            due = inside.next_due()
            if due is None or due > now:
                break
            inside.step(due)  # one time after the other: what ends may let others begin
        if now >= self._sample_at:
            self._take_sample(now)
            self._sample_at = now + self._curves.interval_ns
        if self._over:
            return
        if not self._left():
            self._running = False
            self._tell_progress()
            self._tell({"event": "done"})
        elif now >= self._progress_at:
            self._progress_at = now + PROGRESS_NS
            if self._arrived_bytes != self._told_bytes:
                self._told_bytes = self._arrived_bytes
                self._tell_progress()

    def _go_on_with_rings(self, rings: StreamedRings, traffic: Traffic) -> None:
        """Be ready for what is to arrive next, and send what is due."""
        expected, due = rings.take()
        for transfer in expected:
            if transfer.channel is not None:
                self._expect(transfer)
        for transfer in due:
            if transfer.channel is None:
                self._inside.send(transfer, self._clock_ns())
            else:
                traffic.send(transfer)

    def _expect(self, transfer: Step) -> None:
        """Be ready for a transfer that is no step. Raises `TrafficError` where its transport cannot."""
        raise TrafficError(f"{self._program.transport.kind} carries no rings whose transfers are no steps")

    def _is_of_ring(self, transfer: Step) -> bool:
        return self._rings is not None and transfer.number >= self._rings.first

    def _end_of_ring(self, transfer: Step, now: int) -> None:
        """A transfer of a ring has arrived."""
        rings = self._rings
        assert rings is not None
        step = rings.on_arrived(transfer, now)
        if step >= 0:
            self._arrived_ns[step] = rings.arrived_ns(step)
            self._schedule.end(step, now)

    def _sent_of_ring(self, transfer: Step, now: int) -> None:
        """A transfer of a ring has ended at its source."""
        rings = self._rings
        assert rings is not None
        step = rings.on_sent(transfer)
        if step >= 0:
            self._arrived_ns[step] = rings.arrived_ns(step)
            self._schedule.end(step, now)

    def _tell_progress(self) -> None:
        self._tell({"event": "progress", "bytes": self._arrived_bytes, "step": self._schedule.oldest})

    def _left(self) -> int:
        """Return how many steps, and requests of this host's clients, are not over."""
        return self._schedule.left + (0 if self._requests is None else self._requests.left)

    def deadline(self) -> int | None:
        times: list[int] = []
        if self._requests is not None and not self._over:
            _add(times, self._requests.next_due())
        if (self._begin_ns or self._announce_ready) and not self._over:
            _add(times, self._inside.next_due())
        if self._running:
            times += [self._sample_at, self._progress_at]
            _add(times, self._schedule.next_due())
        return min(times) if times else None

    def _take_sample(self, now: int) -> None:
        if self._traffic is not None and now >= self._begin_ns:
            self._curves.add(now - self._begin_ns, self._traffic.sample())

    # --- what the domain tells ---------------------------------------------------------------------------

    def outgoing(self, step: Step) -> memoryview | None:
        return None if self.buffers is None or step.piece is None else self.buffers.outgoing(step)

    def landing(self, step: Step) -> memoryview | None:
        if self.buffers is None or step.piece is None or step.piece.combine is Combine.REDUCE:
            return None
        return self.buffers.landing(step)

    def on_inside_arrived(self, step: Step, now: int, data: memoryview | None) -> None:
        if self._over:
            return
        if self._is_of_ring(step):
            if step.source in self._program.own:
                self._sent_of_ring(step, now)
            self._end_of_ring(step, now)
            return
        if data is not None:
            assert self.buffers is not None
            self.buffers.deliver(step, data)
        self._arrived_ns[step.number] = now
        self._schedule.end(step.number, now)

    def on_inside_sent(self, step: Step, now: int) -> None:
        if self._over:
            return
        if self._is_of_ring(step):
            self._sent_of_ring(step, now)
        else:
            self._schedule.end(step.number, now)

    # --- what traffic tells ------------------------------------------------------------------------------

    def on_sent(self, step: Step, now: int) -> None:
        if self._is_of_ring(step):
            self._sent_of_ring(step, now)
        else:
            self._schedule.end(step.number, now)

    def on_bytes(self, count: int) -> None:
        self._arrived_bytes += count

    def on_arrived(self, step: Step, now: int) -> None:
        if self._is_of_ring(step):
            self._end_of_ring(step, now)
            return
        self._arrived_ns[step.number] = now
        self._schedule.end(step.number, now)

    def on_failed(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._running = False
            self._tell({"event": "failed", "reason": reason})


def _add(times: list[int], due: int | None) -> None:
    if due is not None:
        times.append(due)
