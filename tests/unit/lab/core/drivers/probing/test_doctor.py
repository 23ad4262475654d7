"""The doctor's verdicts, the FRR search, and that probing leaves nothing behind."""

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest

from testbed.base.errors import CapabilityError
from testbed.cli.machine.doctor_report import report_document
from testbed.lab.core.drivers.probing import doctor, ebpf_probe, kernel_probe, machine
from testbed.lab.core.drivers.probing.doctor import Feature, MachineReport, Status, docker_socket, kernel_features
from testbed.lab.core.drivers.probing.machine import parse_available_memory

pytestmark = pytest.mark.process

NAMES = (*kernel_probe.NAMES, *ebpf_probe.NAMES)
WORKING = dict.fromkeys(NAMES, "")


def fake_frr(directory: Path, says: str, daemons: tuple[str, ...] = machine.NEEDED_DAEMONS) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in daemons:
        program = directory / name
        program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{says}\nEOF\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("zebra version 8.4.4\nCopyright 1996-2005 Kunihiro Ishiguro, et al.\n", (8, 4, 4)),
        ("zebra version 10.3\n", (10, 3)),
        ("bgpd version 10.4.1-0~deb12u1\n", (10, 4, 1)),
        ("zebra version 9.1-dev-my-manual-build\n", (9, 1)),
        ("sh: 1: not found", None),
        ("", None),
    ],
)
def test_version_of_frr(text: str, version: tuple[int, ...] | None) -> None:
    assert machine.parse_frr_version(text) == version


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("zebra version 8.4.4\nconfigured with:\n\t'--enable-fpm' '--enable-multipath=256' '--with-libpam'\n", 256),
        ("zebra version 10.3\nconfigured with:\n\t--enable-multipath=64\n", 64),
        ("zebra version 10.3\n", None),
    ],
)
def test_the_most_next_hops_that_frr_was_built_for(tmp_path: Path, text: str, most: int | None) -> None:
    assert machine.parse_multipath(text) == most
    assert machine.find_frr([fake_frr(tmp_path / "frr", text, daemons=machine.KNOWN_DAEMONS)]).multipath == most


def test_a_limit_of_neighbours_that_is_not_seen_is_no_hindrance(tmp_path: Path) -> None:
    """It is in the machine's first network namespace alone."""
    feature = doctor._neighbours(tmp_path / "gc_thresh3")
    assert (feature.status, feature.required) == (Status.DEGRADED, False)
    assert feature.detail == "the limit is not seen from this network namespace"
    assert "first network namespace" in feature.remedy


def test_finds_the_first_complete_frr(tmp_path: Path) -> None:
    fake_frr(tmp_path / "a", "zebra version 10.3", daemons=("zebra",))
    complete = fake_frr(tmp_path / "b", "zebra version 10.3.1", daemons=("zebra", "bgpd", "bfdd", "mgmtd"))
    found = machine.find_frr([tmp_path / "none", tmp_path / "a", complete])
    assert found.directory == complete
    assert found.version == (10, 3, 1)
    assert found.version_text == "10.3.1"
    assert found.daemon("bgpd") == complete / "bgpd"
    assert found.daemons == ("zebra", "bgpd", "bfdd", "mgmtd")


def test_missing_frr_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError) as raised:
        machine.find_frr([tmp_path])
    assert raised.value.missing == "frr"
    assert raised.value.hint == "apt-get install frr"


def test_frr_without_bfdd_names_it(tmp_path: Path) -> None:
    directory = fake_frr(tmp_path, "zebra version 10.3", daemons=("zebra", "bgpd"))
    with pytest.raises(CapabilityError, match="lacks bfdd"):
        machine.find_frr([directory])


def test_frr_10_needs_mgmtd_and_older_ones_do_not(tmp_path: Path) -> None:
    assert not machine.find_frr([fake_frr(tmp_path / "9", "zebra version 9.1")]).managed
    with pytest.raises(CapabilityError, match=r"FRR 10\.0 in .* lacks mgmtd"):
        machine.find_frr([fake_frr(tmp_path / "10", "zebra version 10.0")])


def test_old_and_broken_frr_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match=r"FRR 7\.5\.1 in .* is older than 8\.4"):
        machine.find_frr([fake_frr(tmp_path / "old", "zebra version 7.5.1")])
    with pytest.raises(CapabilityError, match="says no version: cannot open shared object"):
        machine.find_frr([fake_frr(tmp_path / "broken", "cannot open shared object")])


def test_capabilities_are_read_from_the_effective_set(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n")
    assert machine.missing_capabilities(status) == ("CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN")
    status.write_text("CapEff:\t000001ffffffffff\n")
    assert machine.missing_capabilities(status) == ()


def test_who_does_not_need_a_capability_is_not_refused_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter of the service telemetry has no CAP_SYS_PTRACE."""
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "missing_capabilities", lambda: ("CAP_SYS_PTRACE",))
    with pytest.raises(CapabilityError, match="stripped of CAP_SYS_PTRACE"):
        machine.require_root()
    machine.require_root(without=("CAP_SYS_PTRACE",))


def test_root_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CapabilityError) as raised:
        machine.require_root()
    assert raised.value.missing == "root"


def test_a_required_feature_that_is_missing_forbids_labs() -> None:
    features = kernel_features(WORKING | {"link.veth": "Operation not supported"})
    veth = MachineReport(features=features).feature("veth")
    assert (veth.status, veth.detail) == (Status.MISSING, "Operation not supported")
    assert "modprobe veth" in veth.remedy
    assert not MachineReport(features=features).can_deploy


def test_an_optional_feature_that_is_missing_degrades() -> None:
    features = kernel_features(WORKING | {"qdisc.netem": "Specified qdisc kind is unknown"})
    report = MachineReport(features=features)
    assert report.feature("netem").status is Status.DEGRADED
    assert report.can_deploy


def test_every_feature_that_is_not_ok_has_a_remedy() -> None:
    broken = dict.fromkeys(NAMES, "no")
    report = doctor.probe_machine()
    for feature in (*kernel_features(broken), *report.features, *report.mechanisms):
        assert bool(feature.remedy) == (feature.status is not Status.OK), feature


def test_working_kernel_is_all_ok() -> None:
    assert {feature.status for feature in kernel_features(WORKING)[1:]} == {Status.OK}


def test_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    report = doctor.probe_machine(state_directory=file / "state")
    assert report.feature("state directory").status is Status.MISSING
    assert not report.can_deploy
    report = doctor.probe_machine(state_directory=tmp_path / "not" / "yet")
    assert report.feature("state directory").status is Status.OK
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("", Path("/var/run/docker.sock")),
        ("unix:///run/user/1000/docker.sock", Path("/run/user/1000/docker.sock")),
        ("tcp://10.0.0.1:2375", None),
        ("ssh://lab@host", None),
    ],
)
def test_docker_socket(host: str, path: Path | None) -> None:
    assert docker_socket(host) == path


def test_available_memory() -> None:
    assert parse_available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2048 * 1024
    assert parse_available_memory("") == 0


def test_report_is_json_able_and_names_are_unique() -> None:
    report = doctor.probe_machine()
    assert json.loads(json.dumps(report_document(report)))["features"][0]["name"] == "root"
    names = [feature.name for feature in report.features]
    assert len(set(names)) == len(names)
    with pytest.raises(KeyError):
        report.feature("no such thing")


def test_probing_changes_nothing() -> None:
    def seen() -> tuple[object, ...]:
        return (
            Path("/proc/self/ns/net").readlink(),
            Path("/proc/self/ns/mnt").readlink(),
            sorted(path.name for path in Path("/sys/class/net").iterdir()),
            sorted(path.name for path in Path("/proc/self/fd").iterdir()),
            Path("/proc/sys/net/ipv4/fib_multipath_hash_policy").read_text(),
        )

    doctor.probe_machine()  # imports and thread stacks open files once
    before = seen()
    doctor.probe_machine()
    assert seen() == before


def test_features_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Feature(name="x", status=Status.OK, detail="", needed_for="").name = "y"  # type: ignore[misc]
