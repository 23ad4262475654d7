"""Files of pools, and targets on a command line: each mistake is told at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.api.pool.file import PoolMachine, read_pool
from testbed.base.errors import SpecError, TestbedError
from testbed.vm.remote.ssh import Login
from testbed.vm.remote.target import RemoteTarget


def pool(tmp_path: Path, text: str) -> tuple[PoolMachine, ...]:
    path = tmp_path / "pool.yml"
    path.write_text(text)
    return read_pool(str(path))


def test_a_machine_is_reached_over_ssh_or_is_a_lab_vm_or_this_one(tmp_path: Path) -> None:
    machines = pool(
        tmp_path,
        """
machines:
  - {ssh: root@lab1}
  - {ssh: "me@lab2:2222/home/me/testbed", simulation: 8, emulation: 0}
  - {vm: vm}
  - {here: true, simulation: 2}
""",
    )
    assert machines == (
        PoolMachine(name="lab1", target=RemoteTarget(login=Login(host="lab1", user="root"))),
        PoolMachine(
            name="lab2:2222",
            target=RemoteTarget(login=Login(host="lab2", port=2222, user="me"), path="/home/me/testbed"),
            simulation=8,
            emulation=False,
        ),
        PoolMachine(name="vm:vm", target=RemoteTarget(machine="vm")),
        PoolMachine(name="here", simulation=2),
    )


def test_targets_on_a_command_line_are_a_pool_too() -> None:
    names = [machine.name for machine in read_pool("ssh://root@a,ssh://b:2222,here")]
    assert names == ["a", "b:2222", "here"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "begin with 'machines:'"),
        ("- ssh: a", "begin with 'machines:'"),
        ("machines: []", "must have from 1 to 250 entries"),
        ("machines: [{simulation: 2}]", "pool.yml:1:12: missing-key: machines[0]: the machine is nowhere"),
        ("machines: [{ssh: a, here: true}]", "contradiction: machines[0].here: both ssh and here are given"),
        ("machines: [{ssh: a}, {ssh: root@a}]", "duplicate-machine: machines[1]: a is named twice"),
        ("machines: [{ssh: 'a:b:c'}]", "bad-machine: machines[0].ssh"),
        ("machines: [{ssh: a, emulation: 2}]", "one lab is measured on a machine at a time"),
        ("machines: [{shh: a}]", "did you mean 'ssh'"),
        ("slurm: {partition: cpu}\nmachines: [{here: true}]", "testbed run --point"),
    ],
)
def test_a_mistake_is_told_at_its_place(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        pool(tmp_path, text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "ssh://a,lab2", "ssh://a,,ssh://b", "ssh://a,ssh://root@a"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(TestbedError, match="--pool"):
        read_pool(text)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unreadable"):
        read_pool(str(tmp_path / "none.yml"))


def test_a_file_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vms.yml").write_text("machines: [{here: true}]")
    assert [machine.name for machine in read_pool("vms.yml")] == ["here"]
    assert [machine.name for machine in read_pool("vm")] == ["vm:vm"]
