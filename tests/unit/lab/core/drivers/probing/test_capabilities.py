"""What is kept of the probes and when it is asked again, and which mechanism each feature gets."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.base.datapath.markers import KERNEL_MARKERS
from testbed.base.installation.packages import PROGRAMS, KnownProgram
from testbed.base.linux.modules import ModuleState, module_state
from testbed.lab.core.drivers.probing import capabilities, ebpf_probe, kernel_probe, machine_probe
from testbed.lab.core.drivers.probing.capabilities import FILE_NAME, Capabilities, probe_capabilities
from testbed.lab.core.drivers.probing.machine import FrrInstallation
from testbed.lab.core.drivers.probing.mechanisms import choose_mechanisms
from testbed.lab.core.drivers.probing.status import Status
from testbed.lab.core.drivers.probing.tools import Installed, find_programs, parse_version

DEVICES = ("vm.KVM", "rdma.rxe", "rdma.rxe in namespaces", "storage.nvmet", "python.mininet")
ANSWERS = dict.fromkeys((*kernel_probe.NAMES, *ebpf_probe.NAMES, *DEVICES), "")
FRR = FrrInstallation(directory=Path("/usr/lib/frr"), version=(8, 4, 4), daemons=("zebra", "bgpd", "bfdd"))


def machine_with(*, programs: tuple[str, ...] | None = None, **answers: str) -> Capabilities:
    """A machine that has everything but `answers` (double underscore for the dot)."""
    found = {
        item.name: Installed(name=item.name, path=f"/usr/bin/{item.name}" * (programs is None or item.name in programs))
        for item in PROGRAMS
    }
    named = {name.replace("__", "."): why for name, why in answers.items()}
    assert set(named) <= set(ANSWERS)
    return Capabilities(answers=ANSWERS | named, programs=found, libbpf="1.1", kernel="6.12.0")


def test_a_machine_with_everything() -> None:
    found = choose_mechanisms(machine_with(), frr=FRR, docker="")
    assert {item.status for item in found} == {Status.OK}
    assert len({item.feature for item in found}) == len(found)


@pytest.mark.parametrize(
    ("answers", "feature", "status", "words"),
    [
        ({"qdisc__netem": "no such kind"}, "wire delay", Status.DEGRADED, "endpoint"),
        ({"link__ifb": "no such kind"}, "wire delay", Status.DEGRADED, "endpoint"),
        ({"link__vrf": "no such kind"}, "VRFs of tenants", Status.OK, "a namespace for each: no VRF devices"),
        ({"link__bond": "no such kind"}, "link groups of hosts", Status.OK, "no bonding (bond: no such kind)"),
        ({"qdisc__htb": "no such kind"}, "shaping", Status.MISSING, "htb: no such kind"),
        ({"ebpf__port programs": "no clang"}, "ECN (WRED)", Status.MISSING, "port programs: no clang"),
        ({"ebpf__port programs": "no clang"}, "wire loss", Status.MISSING, "no clang"),
        ({"ebpf__port programs": "no clang"}, "link set", Status.DEGRADED, "no loss"),
        ({"ebpf__bpf_set_hash": "no"}, "load balancing", Status.DEGRADED, "policy 3, seeded"),
        ({"process__SCHED_FIFO": "Operation not permitted"}, "PFC", Status.DEGRADED, "slower reaction"),
        ({"qdisc__tbf": "no such kind"}, "PFC", Status.MISSING, "tbf"),
        (
            {marker.capability.replace(".", "__"): "no such kind" for marker in KERNEL_MARKERS},
            "ECN (WRED)",
            Status.OK,
            "no RED",
        ),
        ({"tcp__dctcp": "this kernel does not have it"}, "TCP with ECN", Status.DEGRADED, "no DCTCP"),
        ({"rdma__rxe": "no"}, "soft RDMA", Status.MISSING, "rxe: no"),
        ({"rdma__rxe in namespaces": "old"}, "soft RDMA", Status.MISSING, "not inside nodes"),
        ({"vm__KVM": "no /dev/kvm"}, "lab VM", Status.DEGRADED, "emulation"),
        ({"python__mininet": "absent"}, "mininet nodes", Status.MISSING, "absent"),
    ],
)
def test_something_is_missing(answers: dict[str, str], feature: str, status: Status, words: str) -> None:
    found = {item.feature: item for item in choose_mechanisms(machine_with(**answers), frr=FRR, docker="")}
    assert found[feature].status is status
    assert words in found[feature].uses
    assert bool(found[feature].remedy) == (status is not Status.OK)


def test_the_missing_kernel_option_is_named() -> None:
    found = {item.feature: item for item in choose_mechanisms(machine_with(qdisc__netem="no"), frr=FRR, docker="")}
    assert "CONFIG_NET_SCH_NETEM" in found["wire delay"].remedy
    assert "6.12.0" in found["wire delay"].remedy


def test_an_older_kernel_delays_in_labs_without_qos_alone() -> None:
    old = replace(machine_with(), kernel="6.1.0-56-amd64")
    found = {item.feature: item for item in choose_mechanisms(old, frr=FRR, docker="")}
    assert found["wire delay"].status is Status.DEGRADED
    assert "Linux 6.4" in found["wire delay"].uses


def test_without_frr_docker_or_programs() -> None:
    found = {
        item.feature: item for item in choose_mechanisms(machine_with(programs=()), frr=None, docker="no such socket")
    }
    for feature in ("BGP", "BFD", "docker nodes", "lab VM", "virtual time"):
        assert found[feature].status is Status.MISSING
        assert "apt-get install" in found[feature].remedy


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which probes ran, on a machine that answers "" to everything."""
    ran: list[str] = []

    def kernel() -> dict[str, str]:
        ran.append("kernel")
        return dict.fromkeys(kernel_probe.NAMES, "")

    def port_programs() -> str:
        ran.append("port programs")
        return "no clang"

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(kernel_probe, "probe_kernel", kernel)
    monkeypatch.setattr(ebpf_probe, "probe_ebpf", lambda root: dict.fromkeys(ebpf_probe.NAMES, ""))
    monkeypatch.setattr(ebpf_probe, "probe_port_programs", port_programs)
    monkeypatch.setattr(ebpf_probe, "libbpf_version", lambda: "1.1")
    monkeypatch.setattr(machine_probe, "probe_devices", lambda: dict.fromkeys(DEVICES, ""))
    monkeypatch.setattr(capabilities, "find_programs", lambda known: {"clang": Installed(name="clang", identity="1")})
    return ran


def edit_kept(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what is kept of the probes."""
    kept = json.loads((directory / FILE_NAME).read_text())
    change(kept)
    (directory / FILE_NAME).write_text(json.dumps(kept))


def test_probed_once_and_again_on_request(tmp_path: Path, counted: list[str]) -> None:
    first = probe_capabilities(tmp_path)
    assert probe_capabilities(tmp_path) == first
    assert counted == ["kernel"]
    probe_capabilities(tmp_path, refresh=True)
    assert counted == ["kernel", "kernel"]
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_probed_again_after_a_reboot_or_with_another_libbpf(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe_capabilities(tmp_path)
    edit_kept(tmp_path, lambda kept: kept.update(key="another boot"))
    probe_capabilities(tmp_path)
    monkeypatch.setattr(ebpf_probe, "libbpf_version", lambda: "1.5")
    probe_capabilities(tmp_path)
    assert counted == ["kernel"] * 3


def test_programs_that_did_not_load_are_tried_again(tmp_path: Path, counted: list[str]) -> None:
    probe_capabilities(tmp_path)
    edit_kept(tmp_path, lambda kept: kept["answers"].update({"ebpf.port programs": "linux/types.h: file not found"}))
    assert probe_capabilities(tmp_path).why("ebpf.port programs") == "no clang"
    assert counted == ["kernel", "port programs"]


def test_a_file_without_the_answer_for_a_marker_is_not_enough(tmp_path: Path, counted: list[str]) -> None:
    probe_capabilities(tmp_path)
    edit_kept(tmp_path, lambda kept: kept["answers"].pop("qdisc.red"))
    assert probe_capabilities(tmp_path).works("qdisc.red")
    assert counted == ["kernel", "kernel"]


def test_answers_that_other_code_asked_for_are_not_enough(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an update in a checkout, whose `doctor` wants an answer that nobody asked for."""
    with monkeypatch.context() as patch:
        patch.setattr(capabilities, "_ASKING", capabilities._ASKING[:-1])
        probe_capabilities(tmp_path)
    edit_kept(tmp_path, lambda kept: kept["answers"].pop("sysctl.bridged frames"))
    assert probe_capabilities(tmp_path).works("sysctl.bridged frames")
    assert counted == ["kernel", "kernel"]


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 99}', '{"schema": 1, "answers": {}}'])
def test_a_damaged_file_is_not_believed(tmp_path: Path, counted: list[str], text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert probe_capabilities(tmp_path).works("qdisc.netem")
    assert counted == ["kernel"]


def test_a_place_that_cannot_be_written_costs_only_time(tmp_path: Path, counted: list[str]) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(2):
        probe_capabilities(tmp_path / "file" / "state")
    assert counted == ["kernel", "kernel"]


def test_others_than_root_keep_nothing(tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    probe_capabilities(tmp_path)
    assert not list(tmp_path.iterdir())


def program(directory: Path, name: str, says: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho x >> {directory}/asked\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.process
def test_a_program_is_asked_once_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    wanted = (
        KnownProgram(name="wxprogram", package="p", needed_for="x"),
        KnownProgram(name="wxnone", package="p", needed_for="x"),
    )
    program(tmp_path, "wxprogram", "wxprogram version 1.2.3-4")
    first = find_programs({}, wanted)
    assert first["wxprogram"].version == "1.2.3-4"
    assert first["wxnone"].path == ""
    assert find_programs(first, wanted) == first
    assert (tmp_path / "asked").read_text() == "x\n"
    (tmp_path / "wxprogram").unlink()
    program(tmp_path, "wxprogram", "wxprogram version 1.10.0 is newer")
    assert find_programs(first, wanted)["wxprogram"].version == "1.10.0"


@pytest.mark.process
def test_a_program_that_does_not_run_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "wxbroken").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "wxbroken").chmod(0o755)
    found = find_programs({}, (KnownProgram(name="wxbroken", package="p", needed_for="x"),))
    assert "does not run" in found["wxbroken"].error


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu", "14.0.6"),
        ("bpftool v7.1.0\nusing libbpf v1.1", "7.1.0"),
        ("ip utility, iproute2-6.1.0, libbpf 1.1.2", "6.1.0"),
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", "7.2.22"),
        ("iperf 3.12 (cJSON 1.7.15)", "3.12"),
        ("usage: something", ""),
    ],
)
def test_versions(text: str, version: str) -> None:
    assert parse_version(text) == version


def test_modules(tmp_path: Path) -> None:
    lists, sysfs = tmp_path / "lib", tmp_path / "sys"
    for directory in (lists, sysfs / "rdma_rxe", sysfs / "sch_htb"):
        directory.mkdir(parents=True)
    (sysfs / "rdma_rxe" / "initstate").write_text("live\n")
    (lists / "modules.builtin").write_text("kernel/net/bridge/bridge.ko\n")
    (lists / "modules.dep").write_text("kernel/net/sched/sch_netem.ko.xz:\nkernel/x/rdma_rxe.ko: kernel/y/ib_core.ko\n")
    states = {
        name: module_state(name, modules=lists, sysfs=sysfs)
        for name in ("bridge", "rdma_rxe", "sch_htb", "sch_netem", "ib_core")
    }
    assert states == {
        "bridge": ModuleState.BUILT_IN,
        "rdma_rxe": ModuleState.LOADED,
        "sch_htb": ModuleState.BUILT_IN,
        "sch_netem": ModuleState.AVAILABLE,
        "ib_core": ModuleState.ABSENT,
    }


def test_kvm_needs_its_device_and_more_than_a_file(tmp_path: Path) -> None:
    assert machine_probe.kvm(tmp_path / "kvm") == f"no {tmp_path / 'kvm'}"
    (tmp_path / "kvm").write_text("")
    assert "no machine can be made" in machine_probe.kvm(tmp_path / "kvm")


@pytest.mark.parametrize(
    ("release", "version"), [("6.1.0-56-amd64", (6, 1)), ("7.2.12+deb13", (7, 2)), ("weird", (0, 0))]
)
def test_kernel_versions(release: str, version: tuple[int, int]) -> None:
    assert machine_probe.kernel_version(release) == version
