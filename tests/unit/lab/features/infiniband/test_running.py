"""Programs of a plane: how they are started, and that starting them again has an end."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.core.model.infiniband import InfinibandSettings
from testbed.lab.features.infiniband import running
from testbed.lab.features.infiniband.configuration import PlannedNode, PlannedSubnet
from testbed.lab.features.infiniband.manager import Manager, ManagersStuck
from testbed.lab.features.infiniband.plane import ENDING, Plane
from testbed.lab.features.infiniband.running import SIMULATOR, settle
from testbed.lab.features.infiniband.simulator import Simulator

HOSTS = ("h1", "h2", "h3")
SUBNET = PlannedSubnet(
    nodes={
        f"{host}:ib0": PlannedNode(
            name=f"{host}:ib0", identifier=host.upper(), guid=number, ports=1, is_switch=False, host=host
        )
        for number, host in enumerate(HOSTS)
    },
    links=(),
    settings=InfinibandSettings(sm_hosts=HOSTS),
)


class FakeProcess:
    """A program that runs until it is killed."""

    pid = 1 << 22

    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9

    def wait(self) -> int:
        assert self.returncode is not None, "nobody has ended it"
        return self.returncode


def test_programs_without_a_lab_end_with_whoever_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Path("/nowhere")
    for user in (0, 1000):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        alone = Plane(directory=directory, socket="s").command(["opensm"])
        assert alone[-len(ENDING) - 1 : -1] == list(ENDING)
        assert "--pdeathsig" not in Plane(directory=directory, namespace="lab-infiniband").command(["opensm"])


def test_what_runs_as_root_keeps_its_files_where_nobody_may_not_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directories: list[Path] = []

    def start(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, **options: Any) -> FakeProcess:
        directories.append(cwd)
        return FakeProcess()

    monkeypatch.setattr(subprocess, "Popen", start)
    plane = Plane(directory=tmp_path, socket="s")
    plane.start(["opensm"])
    plane.start(["python3"], "H1", unprivileged=False)
    assert directories == [plane.work, tmp_path]


def test_ibsim_ends_where_waiting_for_it_is_broken_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    process = FakeProcess()

    def break_off(self: Simulator) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Plane, "start", lambda *arguments, **options: process)
    monkeypatch.setattr(Simulator, "_is_done", break_off)
    with pytest.raises(KeyboardInterrupt):
        Simulator(plane=Plane(directory=tmp_path)).start(SUBNET)
    assert process.returncode == -9


def test_managers_that_are_always_stuck_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    started = 0

    def start(*arguments: object) -> FakeProcess:
        nonlocal started
        started += 1
        return FakeProcess()

    def stuck(*arguments: object, told: Sequence[int] = ()) -> None:
        if told:
            raise ManagersStuck("they do nothing", operation="opensm")

    def nothing(result: object = None) -> Callable[..., object]:
        return lambda *arguments, **options: result

    def never_begun(*arguments: object) -> None:
        raise ManagersStuck("it does nothing", operation="opensm")

    monkeypatch.setattr(Manager, "start", start)
    monkeypatch.setattr(Simulator, "forget_dead", nothing())
    monkeypatch.setattr(running, "await_sweep", stuck)
    monkeypatch.setattr(running, "await_begun", never_begun)
    monkeypatch.setattr(
        running, "noted_pids", nothing({SIMULATOR: 1} | {f"{host}:ib0": pid for pid, host in enumerate(HOSTS, 2)})
    )
    for name in ("_note", "disown", "kill_manager"):
        monkeypatch.setattr(running, name, nothing())
    monkeypatch.setattr(running, "count_sweeps", nothing(0))
    with pytest.raises(ManagersStuck):
        settle(Plane(directory=Path("/nowhere")), SUBNET, 0, 1.0)
    assert 0 < started < 100
