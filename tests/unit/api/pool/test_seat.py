"""A seat does what it is asked in processes of its own, and ends them when nobody asks any more."""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import pytest
from waiting import until

from testbed.api.pool.answers import RunAnswer, decode_answer
from testbed.api.pool.emulating import LAB_FILE, LabClaim
from testbed.api.pool.parcel import SweepOrder, pack_sweep, unpack_parcel
from testbed.api.pool.seat import Seat, serve_seat
from testbed.lab.core.deploy.records.journal import boot_id
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

TEXT = """name: seated
topology:
  inline: {name: seated, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, bytes: SIZE}
matrix: {transport.paths: [oblivious, reps]}
"""


class Asked:
    """A seat in a process, and the connection over which it is asked."""

    def __init__(self, parcels: Path) -> None:
        self._ours, theirs = socket.socketpair()
        self._lines: BinaryIO = self._ours.makefile("rb")
        context = multiprocessing.get_context("fork")
        seat = Seat(kind="simulation", connection=theirs, parcels=parcels)
        self.process = context.Process(target=self._serve, args=(seat,))
        self.process.start()
        theirs.close()

    def _serve(self, seat: Seat) -> None:
        self.close()
        serve_seat(seat)

    def ask(self, order: SweepOrder, point: int, run: int = 1) -> None:
        request = {"what": "simulate", "order": asdict(order), "point": point, "run": run}
        self._ours.sendall(json.dumps(request).encode() + b"\n")

    def answer(self) -> RunAnswer:
        line = next(line for line in self._lines if not line.startswith(b'{"share"'))
        return decode_answer(RunAnswer, line, "the seat")

    def share(self) -> float:
        """The next share that it tells."""
        return float(json.loads(self._lines.readline())["share"])

    def run(self) -> int:
        """The process that does the run."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(until(lambda: children.read_text().split(), "a run has its process")[0])

    def close(self) -> None:
        self._lines.close()
        self._ours.close()


@pytest.fixture
def order(tmp_path: Path) -> SweepOrder:
    return sent(tmp_path, "100kB")


def sent(tmp_path: Path, size: str) -> SweepOrder:
    path = tmp_path / f"seated-{size}.yml"
    path.write_text(TEXT.replace("SIZE", size))
    archive, order = pack_sweep(read_sweep(path))
    unpack_parcel(archive, tmp_path / "parcels" / order.parcel)
    return order


@pytest.fixture
def seat(tmp_path: Path) -> Iterator[Asked]:
    asked = Asked(tmp_path / "parcels")
    yield asked
    asked.close()
    asked.process.join(20)
    assert asked.process.exitcode == 0, "it ends by itself when nobody asks any more"


def test_a_run_is_the_one_that_this_process_does(seat: Asked, order: SweepOrder) -> None:
    sweep = read_sweep(TEXT.replace("SIZE", "100kB"))
    for number in (1, 2, 1):
        seat.ask(order, number)
        here = SimulatedPoint(sweep.points[number - 1], sweep.lab_of(sweep.points[0])).run(1, lambda share: False)
        assert seat.answer().result == here.result


def test_a_run_that_is_killed_is_told_and_the_next_one_runs(seat: Asked, order: SweepOrder, tmp_path: Path) -> None:
    seat.ask(sent(tmp_path, "200MB"), 1)
    os.kill(seat.run(), signal.SIGKILL)
    answer = seat.answer()
    assert answer.died == -signal.SIGKILL and answer.result is None
    seat.ask(order, 1)
    assert seat.answer().result is not None


def test_when_the_worker_is_gone_its_run_ends_at_once(seat: Asked, tmp_path: Path) -> None:
    seat.ask(sent(tmp_path, "200MB"), 1)
    descriptor = os.pidfd_open(seat.run())
    assert 0 < seat.share() <= 1, "it is under way"
    seat.close()
    ended, _, _ = select.select([descriptor], [], [], 20)
    os.close(descriptor)
    assert ended


def test_what_is_wrong_with_a_sweep_there_is_the_answer(seat: Asked, order: SweepOrder) -> None:
    seat.ask(SweepOrder(parcel="none", file=order.file), 1)
    raised = seat.answer().raised
    assert raised is not None and "unreadable" in raised.message
    seat.ask(order, 9)
    raised = seat.answer().raised
    assert raised is not None and "has no point 9" in raised.message


def test_two_sweeps_of_one_file_are_told_apart_whichever_was_asked_before(seat: Asked, tmp_path: Path) -> None:
    path = tmp_path / "twice.yml"
    path.write_text(TEXT.replace("SIZE", "100kB"))
    orders = []
    for size in ("100kB", "200kB"):
        archive, order = pack_sweep(read_sweep(path, {"workload.bytes": size}))
        unpack_parcel(archive, tmp_path / "parcels" / order.parcel)
        orders.append(order)
    assert len({order.parcel for order in orders}) == 1, "they differ by what they override alone"
    answers = []
    for order in (orders[0], orders[1], orders[0]):
        seat.ask(order, 1)
        answers.append(seat.answer().result)
    assert answers[0] == answers[2] != answers[1]


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", tmp_path / "run")


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of labs that a seat removes, which are gone then."""
    names: list[str] = []

    def remove(name: str, state: StateDirectory) -> None:
        names.append(name)
        shutil.rmtree(state.lab_directory(name))

    monkeypatch.setattr("testbed.api.pool.emulating.destroy_lab", remove)
    return names


def deployed(state: StateDirectory, name: str, source: str) -> None:
    record = LabRecord(
        name=name, slot=0, k=1.0, version="1", created="now", source=source, directory="/", model={"name": name}
    )
    state.lab_directory(name).mkdir(parents=True)
    state.write(record)


def noted(state: StateDirectory, boot: str = "") -> None:
    state.prepare(run=False)
    note = {"name": "left", "source": "/root/.testbed-work/pool/a1/parcels/b2/left.yml", "boot": boot or boot_id()}
    (state.state / LAB_FILE).write_text(json.dumps(note))


def test_a_lab_that_a_killed_seat_has_left_is_removed_by_the_next(state: StateDirectory, removed: list[str]) -> None:
    noted(state, boot="another")
    deployed(state, "left", "/root/.testbed-work/pool/a1/parcels/b2/left.yml")
    one, other = LabClaim(state), LabClaim(state)
    one.let_go()
    assert removed == ["left"]
    other.let_go()
    assert removed == ["left"], "once"
    assert (state.state / LAB_FILE).read_bytes() == b""


def test_a_lab_of_that_name_that_a_user_has_deployed_since_stays(state: StateDirectory, removed: list[str]) -> None:
    noted(state)
    deployed(state, "left", "/home/me/left.yml")
    LabClaim(state).let_go()
    assert removed == [] and state.exists("left")
    assert (state.state / LAB_FILE).read_bytes() == b"", "nobody looks for it again"


@pytest.mark.parametrize(("boot", "wanted"), [("", ["left"]), ("another", [])])
def test_a_lab_that_was_being_made_is_removed_unless_the_machine_was_started_since(
    state: StateDirectory, removed: list[str], boot: str, wanted: list[str]
) -> None:
    noted(state, boot)
    state.lab_directory("left").mkdir(parents=True)
    LabClaim(state).let_go()
    assert removed == wanted


@pytest.mark.parametrize("note", [b"left", b"[]", b"{}", b'{"name": "left"}', b"\xff{"])
def test_a_note_that_says_no_lab_is_none(state: StateDirectory, removed: list[str], note: bytes) -> None:
    state.prepare(run=False)
    (state.state / LAB_FILE).write_bytes(note)
    deployed(state, "left", "/home/me/left.yml")
    LabClaim(state).let_go()
    assert removed == []


def test_a_claim_notes_the_lab_before_it_is_made_and_no_lab_that_was_there(
    state: StateDirectory, removed: list[str], tmp_path: Path
) -> None:
    sweep = read_sweep(TEXT.replace("SIZE", "100kB")).only(1)
    [lab] = sweep.labs.values()
    claim = LabClaim(state)
    claim.claim(sweep, lambda: None)
    assert json.loads((state.state / LAB_FILE).read_text()) == {
        "name": "seated",
        "source": lab.source,
        "boot": boot_id(),
    }
    deployed(state, "seated", lab.source)
    claim.let_go()
    assert removed == ["seated"]
    deployed(state, "seated", lab.source)
    claim.claim(sweep, lambda: None)
    claim.let_go()
    assert removed == ["seated"], "it was up before"
