"""The process on a machine that is asked about its part of a lab: `python -m testbed.api.pool.over.part_server`.

It is driven by lines of its input and ends with that; a deploy that is under way then is interrupted, and undone.
"""

from __future__ import annotations

import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from socket import AF_INET
from typing import Any, BinaryIO, NoReturn

from testbed.api.pool.about import about_this_machine, encode_about
from testbed.api.pool.over import messages, run_messages
from testbed.api.pool.over.messages import QUESTIONS, line_of, read_line
from testbed.api.pool.over.watching import PartWatch
from testbed.base.errors import ConvergenceError, ExitCode, LabNotFound, TestbedError
from testbed.base.linux.iproute import converse_here
from testbed.base.version import __version__
from testbed.daemons.wires.configuration import WiresStatus
from testbed.endpoints.worker.streams.tcp_socket import has_congestion_control
from testbed.lab.core.deploy.congestion_control import read_congestion_controls
from testbed.lab.core.deploy.lifecycle import DeployOptions, LabExists, deploy_lab, destroy_lab, require_machine
from testbed.lab.core.deploy.listing import listed_labs
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.mechanisms import Mechanisms, choose_mechanisms, require_rdma
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns
from testbed.lab.core.deploy.preparation import Agreed
from testbed.lab.core.deploy.records.journal import state_error
from testbed.lab.core.deploy.records.lab_record import decode_lab
from testbed.lab.core.deploy.records.state import StateBusy, StateDirectory
from testbed.lab.core.deploy.routing import PASSWORD_FILE
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.deploy.steps import StepEvent
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.drivers.probing.machine import find_frr, require_root
from testbed.lab.core.model import DelayBy, Lab
from testbed.lab.core.model.written import WrittenLab
from testbed.lab.features.machines.part import LabPart
from testbed.lab.features.machines.watch import count_cuts
from testbed.lab.features.machines.wires import KEY_NAME, carriers_run, wires_status

PINGS, PING_INTERVAL_S = 20, 0.01
BUSY_S = 90.0
"""A deploy that is being undone has so much time before a destroy gives up."""
GO_S = 900.0
"""A claim that nobody follows up is given back after this time: who made it may have been switched off."""
KEY_BYTES = 32
_RTT = re.compile(r"= ([0-9.]+)/")
_PINGED_AT_ONCE = 16


class PartServer:
    """Answers questions, one after the other."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._deploying = threading.Event()
        self._state = StateDirectory()
        self._watch = PartWatch(self._state)
        self._answers: Mapping[type, Callable[[Any], object]] = {
            messages.Look: self._look,
            messages.Reach: self._reach,
            messages.Deploy: self._deploy,
            messages.Destroy: self._destroy,
            messages.AskState: self._tell_state,
            messages.AskCheck: self._check,
            messages.AskCount: self._count,
            messages.AskPing: self._ping,
            run_messages.AskLab: self._tell_lab,
            run_messages.AskClock: lambda _: run_messages.ClockAnswer(now_ns=time.monotonic_ns()),
            run_messages.WatchPart: self._watch.begin,
            run_messages.BeginFaults: self._watch.begin_faults,
            run_messages.AwaitRouting: self._watch.await_routing,
            run_messages.UnwatchPart: self._watch.end,
        }

    def run(self) -> int:
        """Work until the input ends, or until what is done is interrupted; the exit code."""
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            return self._work()
        finally:
            self._watch.close()

    def _work(self) -> int:
        while (line := self._asked.get()) is not None:
            try:
                question = read_line(line, QUESTIONS)
                answer = self._answers[type(question)](question)
            except ConvergenceError as error:
                answer = messages.PartRefused(
                    message=error.message, hint=error.hint, converging=True, missing=error.missing
                )
            except TestbedError as error:
                answer = messages.PartRefused(message=error.message, hint=error.hint)
            except KeyboardInterrupt:  # the connection broke: there may be no end of the input
                self._say(messages.PartRefused(message="interrupted"))
                return ExitCode.INTERRUPTED
            except (ValueError, KeyError, OSError) as error:
                answer = messages.PartRefused(message=f"{type(error).__name__}: {error}")
            self._say(answer)
        return 0

    def _listen(self) -> None:
        with suppress(OSError):  # a connection that breaks has ended
            for line in self._source:
                self._asked.put(line)
        self._asked.put(None)
        if self._deploying.is_set() and (main := threading.main_thread().ident) is not None:
            signal.pthread_kill(main, signal.SIGINT)

    def _say(self, answer: object) -> None:
        with suppress(OSError):  # whoever asked is gone, and the input says so, too
            self._sink.write(line_of(answer))
            self._sink.flush()

    # --- before a deploy -----------------------------------------------------------------------------

    def _look(self, asked: messages.Look) -> messages.LookAnswer:
        require_root()
        lab, state = decode_lab(asked.lab), self._state
        here = _part(asked.machine, asked.places).model(lab)
        if here.speakers:
            find_frr()
        require_rdma(here)
        require_machine(here, state)
        by = choose_mechanisms(lab, state)
        about = about_this_machine(probed=False)
        address, device = _underlay(asked.underlay, asked.reached)
        goes = {lab.name} if asked.replaces is not None and not self._is_another(lab.name, asked.replaces) else set()
        scale = resolve_scale(here, state, replaces=bool(goes))
        return messages.LookAnswer(
            testbed=__version__,
            sources=about.sources,
            exists=state.exists(lab.name) and lab.name not in goes,
            k=scale.k,
            reason=scale.reason,
            delay_by="" if by.delay_by is None else by.delay_by.value,
            reaction_ns=planned_reaction_ns(lab, state),
            taken=tuple(
                slot
                for name in state.names()
                if name not in goes and type(slot := state.salvage(name).get("slot")) is int
            ),
            address=address,
            device=device,
            mtu_bytes=int(_of_device(device, "mtu")),
            speed_bps=max(0, int(_of_device(device, "speed", "0"))) * 1_000_000,
        )

    def _reach(self, asked: messages.Reach) -> messages.ReachAnswer:
        rtt_ns, lost = {}, {}
        for name, address in asked.addresses.items():
            done = _ping(address, asked.packet_bytes)
            match = _RTT.search(done.stdout)
            if done.returncode == 0 and match:
                rtt_ns[name] = round(float(match[1]) * 1e6)
            else:
                lost[name] = _why_lost(done)
        return messages.ReachAnswer(rtt_ns=rtt_ns, lost=lost)

    # --- a deploy and its end ------------------------------------------------------------------------

    def _deploy(self, asked: messages.Deploy) -> messages.Up:
        lab, part = decode_lab(asked.lab), LabPart.from_json(asked.part)
        if asked.written is not None:
            lab = _with_written(lab, asked.written)
        if self._state.exists(lab.name):
            raise LabExists(f"there is a lab {lab.name}", hint=f"testbed destroy -n {lab.name}")
        started = time.monotonic()
        delay_by = DelayBy(asked.delay_by) if asked.delay_by else None
        agreed = Agreed(
            part=part,
            slot=asked.slot,
            by=Mechanisms(delay_by=delay_by, vrf_by=None, lag_by=None),
            reaction_ns=asked.reaction_ns,
            claimed=lambda: self._claim(lab, bytes.fromhex(asked.key)),
        )
        options = DeployOptions(
            k=asked.k,
            timeout_s=asked.timeout_s,
            wait=asked.wait,
            directory=self._state.lab_directory(lab.name),
            agreed=agreed,
        )
        self._deploying.set()
        try:
            outcome = deploy_lab(lab, self._state, options, self._tell_step)
        finally:
            self._deploying.clear()
        return messages.Up(nodes=len(outcome.lab.model.nodes), seconds=time.monotonic() - started)

    def _claim(self, lab: Lab, key: bytes) -> None:
        """Keep the secrets that all machines of a lab have in common, and wait until the others have claimed it."""
        directory = self._state.lab_directory(lab.name)
        _keep_secret(directory / KEY_NAME, key)
        _keep_secret(directory / PASSWORD_FILE, key.hex().encode())
        self._say(messages.Claimed())
        try:
            line = self._asked.get(timeout=GO_S)
        except queue.Empty:
            raise messages.PartFailed(f"{lab.name} is not deployed after all: nobody said so in {GO_S:.0f} s") from None
        if line is None:
            self._asked.put(None)  # that is the end of the work, too
        if line is None or not isinstance(read_line(line, QUESTIONS), messages.Go):
            raise messages.PartFailed(f"{lab.name} is not deployed after all: another machine could not claim it")

    def _tell_step(self, event: StepEvent) -> None:
        if event.phase == "stop":
            self._say(messages.PartStep(step=event.step, detail=event.detail, seconds=event.duration_s))

    def _destroy(self, asked: messages.Destroy) -> messages.Removed:
        end = time.monotonic() + BUSY_S
        while True:
            if self._is_another(asked.lab, asked.mark):
                said = f"another lab is called {asked.lab} by now, and stays"
                return messages.Removed(there=False, remaining=(said,))
            try:
                outcome = destroy_lab(asked.lab, self._state)
            except LabNotFound:
                return messages.Removed(there=False)
            except StateBusy:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)  # a lock of another process, which may be held for as long as an undo takes
                continue
            return messages.Removed(there=True, nodes=outcome.nodes, remaining=outcome.remaining)

    def _is_another(self, lab: str, mark: str) -> bool:
        """Tell whether the lab of that name is not the one that is meant, but somebody has deployed it since."""
        if not mark or not self._state.exists(lab):
            return False
        with suppress(FileNotFoundError):
            key = (self._state.lab_directory(lab) / KEY_NAME).read_bytes()
            if len(key) == KEY_BYTES:
                return mark_of(key) != mark
        said = self._state.salvage(lab)
        return bool(said) and said.get("part") is None  # a part without a key was cut short

    # --- while it lives ------------------------------------------------------------------------------

    def _tell_state(self, asked: messages.AskState) -> messages.StateAnswer:
        row = next((row for row in listed_labs(self._state) if row.name == asked.lab), None)
        if row is None:
            return messages.StateAnswer(state="gone")
        try:
            lab = RunningLab.open(asked.lab, self._state)
            part = lab.part if isinstance(lab.part, LabPart) else None
            if part is None or carriers_run(lab.plan, self._state):
                status = wires_status(lab.plan, self._state)
            else:
                status = WiresStatus(silent=tuple(part.peers))
            cuts = 0 if part is None else len(part.cuts(lab.plan))
        except TestbedError:  # a deploy that was cut short
            return messages.StateAnswer(state=row.state)
        return messages.StateAnswer(
            state=row.state,
            nodes=len(lab.model.nodes),
            cut_links=cuts,
            k=lab.record.k,
            heard=status.heard,
            silent=status.silent,
            down=status.down,
        )

    def _tell_lab(self, asked: run_messages.AskLab) -> run_messages.LabAnswer:
        require_root()
        record = self._state.read(asked.lab)
        if record.part is None or record.numbers is not None:
            raise messages.PartFailed(f"the lab {asked.lab} there is none over several machines as it was deployed")
        lab = RunningLab.open(asked.lab, self._state)
        return run_messages.LabAnswer(
            model=record.model,
            revision=record.revision,
            slot=record.slot,
            k=record.k,
            delay_by=record.delay_by,
            reaction_ns=record.reaction_ns,
            about=encode_about(about_this_machine(probed=False)).decode(),
            underlay_ns=max((peer.delay_ns for peer in LabPart.from_json(record.part).peers.values()), default=0),
            controls=read_congestion_controls(lab, [host.node for host in lab.plan.hosts]),
            lacking=tuple(name for name in asked.congestion_controls if not has_congestion_control(name)),
        )

    def _check(self, asked: messages.AskCheck) -> messages.CheckAnswer:
        lab = RunningLab.open(asked.lab, self._state)
        results = tuple(
            messages.Result(
                name=result.name,
                status=result.status.value,
                count=result.count,
                detail=result.detail,
                failures=result.failures,
                by_network=result.by_network,
            )
            for result in check_lab(lab).results
        )
        nics: dict[str, dict[str, str]] = {}
        for host in lab.plan.hosts:
            for nic in host.nics:
                if nic.address is not None:
                    place = nics.setdefault(f"{nic.network} rail {nic.rail}", {})
                    place[host.node] = str(nic.address.ip)
        return messages.CheckAnswer(results=results, nics=nics)

    def _count(self, asked: messages.AskCount) -> messages.CountAnswer:
        return messages.CountAnswer(ports=tuple(count_cuts(RunningLab.open(asked.lab, self._state))))

    def _ping(self, asked: messages.AskPing) -> messages.PingAnswer:
        lab = RunningLab.open(asked.lab, self._state)

        def lost(pair: tuple[str, str]) -> bool:
            argv = ["ping", "-n", "-q", "-c", "1", "-W", "2", pair[1]]
            return any(lab.run(pair[0], argv).returncode == 0 for _ in range(3)) is False

        with ThreadPoolExecutor(_PINGED_AT_ONCE) as pool:
            found = list(pool.map(lost, asked.pairs))
        return messages.PingAnswer(lost=tuple(pair for pair, gone in zip(asked.pairs, found, strict=True) if gone))


def _part(machine: str, places: Mapping[str, str]) -> LabPart:
    """The part of a machine whose underlay is not known yet."""
    return LabPart(machine=machine, places=places, address="0.0.0.0", device="", peers={})


def _with_written(lab: Lab, written: Mapping[str, str]) -> Lab:
    from dataclasses import replace

    try:
        return replace(lab, written=WrittenLab(**written))
    except TypeError as error:
        raise ValueError(f"the file of {lab.name} is told otherwise: {error}") from error


def _underlay(device: str, reached: str) -> tuple[str, str]:
    """The address of this machine for others, and its interface: that of this name, or that which has the address at
    which SSH came. Raises `PartFailed` where there is none."""
    found = converse_here(lambda route: list(route.get_addr(family=AF_INET)), "addresses")
    names = {path.name for path in Path("/sys/class/net").iterdir()}
    for item in found:
        told = dict(item["attrs"])
        name, address = str(told.get("IFA_LABEL", "")).partition(":")[0], str(told.get("IFA_LOCAL", ""))
        if name in names and (name == device if device else address == reached):
            return address, name
    if device:
        hint = f"there are {', '.join(sorted(names))}"
        raise messages.PartFailed(f"no interface {device} with an IPv4 address", hint=hint)
    raise messages.PartFailed(
        f"no interface has the address {reached}, at which SSH came here",
        hint="name the interface: machines: {NAME: {underlay: eth1}}",
    )


def _of_device(device: str, name: str, otherwise: str = "") -> str:
    try:
        return Path("/sys/class/net", device, name).read_text().strip()
    except OSError:  # EINVAL where a link says no speed
        if otherwise:
            return otherwise
        raise


def _ping(address: str, packet_bytes: int) -> subprocess.CompletedProcess[str]:
    """Echo requests in IP packets of so many bytes (IP header 20, ICMP 8), with DF set."""
    payload = str(max(0, packet_bytes - 28))
    times = ["-c", str(PINGS), "-i", str(PING_INTERVAL_S), "-W", "1"]
    return subprocess.run(
        ["ping", "-n", "-q", *times, "-M", "do", "-s", payload, address],
        env=os.environ | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _why_lost(done: subprocess.CompletedProcess[str]) -> str:
    said = [line for line in (done.stderr + done.stdout).splitlines() if "essage too long" in line or "loss" in line]
    return said[0].strip() if said else (done.stderr.strip() or "no answer")


def _keep_secret(path: Path, content: bytes) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise state_error(path, error) from error


def new_key() -> str:
    """Return a key that the machines of a lab sign their messages with, in hexadecimal digits."""
    return secrets.token_hex(KEY_BYTES)


def mark_of(key: bytes) -> str:
    """Return what tells a lab from another one of its name: a hash of its key, which does not give that away."""
    return blake2b(key, digest_size=16, person=b"testbed-lab").hexdigest()


def main() -> int:
    """Serve on standard input and output; whatever is printed goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt_once)
    try:
        return PartServer(sys.stdin.buffer, answers).run()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def interrupt_once(_number: int, _frame: object) -> NoReturn:
    """Interrupt what is done, and let nothing interrupt how it is undone: the end of a connection is told twice, by the
    end of the input and by the tether."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
