"""A machine that lacks something: a clear error, and nothing touched."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import CapabilityError, TestbedError
from testbed.base.linux import syscalls
from testbed.lab.core.deploy import lifecycle
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.probing.machine import find_frr

pytestmark = [pytest.mark.netns, pytest.mark.frr]

PAGE_BYTES = 4096

# Everything is imported, then root's rights go: the interpreter may lie where nobody else can read.
WITHOUT_ROOT = """
import logging, os, sys
import testbed.cli.lab_choice, testbed.cli.progress, testbed.lab.core.deploy.lifecycle, testbed.lab.core.deploy.scale
import testbed.lab.core.drivers.probing.mininet, testbed.lab.core.plan.link_delays
from pathlib import Path
from testbed.cli.app import main
from testbed.cli.output import console, error_console
console().print("", end=""), error_console().print("", end="")
from testbed.lab.core.deploy.records.lab_record import encode_lab
from testbed.lab.core.schema.load import load_topology
encode_lab(load_topology(Path(sys.argv[1])))
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.argv = ["testbed", "deploy", "-t", sys.argv[1]]
main()
"""


def test_without_root_deploy_says_so(sandbox: Any) -> None:
    path = sandbox.root / "topology.yml"
    path.write_text(
        "name: nobody\nscale: {time: 10000}\nfabric: {design: rail-optimized, hosts: 1, gpus: 1, spines: 1}\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOT, str(path)],
        env=sandbox.environment,
        cwd=sandbox.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3, result
    assert "need root" in result.stderr
    assert "sudo" in result.stderr
    assert "Traceback" not in result.stderr
    assert sandbox.leftovers() == []


def test_without_frr_nothing_is_touched(sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "find_frr", functools.partial(find_frr, directories=(tmp_path,)))
    with pytest.raises(CapabilityError, match="FRR is not installed") as caught:
        sandbox.deploy(sandbox.tiny())
    assert (caught.value.missing, caught.value.exit_code) == ("frr", 3)
    assert "apt-get install frr" in str(caught.value)
    assert sandbox.leftovers() == []
    assert not sandbox.state.labs.exists()


@contextmanager
def _small_disk(path: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of that size; labs recorded on it are destroyed before it goes."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        recorded = StateDirectory(path / "state", path.parent / "run")
        for lab in recorded.names():
            lifecycle.destroy_lab(lab, recorded)
        syscalls.umount(str(path))
        path.rmdir()


def test_a_full_disk_under_the_state_directory_leaves_nothing(sandbox: Any) -> None:
    """With 0, 1, 2, ... free pages the deploy fails at every place where it writes, until it fits."""
    messages = []
    with _small_disk(sandbox.root / "disk", 16 * PAGE_BYTES) as disk:
        full = disk / "full"
        sandbox.state = StateDirectory(disk / "state", sandbox.root / "run")
        sandbox.state.prepare()
        room = os.statvfs(disk).f_bavail
        for free in range(room):
            full.write_bytes(bytes((room - free) * PAGE_BYTES))
            try:
                sandbox.deploy(sandbox.tiny(), wait=False)
            except TestbedError as error:
                messages.append(error.message)
                assert "No space left on device" in error.message
                assert str(disk) in error.message
                assert [item for item in sandbox.leftovers() if not item.startswith("mount")] == []
                continue
            break
        else:
            pytest.fail(f"it never fitted: {messages}")
        assert len(messages) >= 2
        sandbox.destroy()


def test_a_full_disk_under_the_lab_directory_leaves_nothing(sandbox: Any) -> None:
    with _small_disk(sandbox.root / "disk", 2 * PAGE_BYTES) as disk:
        (disk / "full").write_bytes(bytes(PAGE_BYTES))
        with pytest.raises(TestbedError, match="No space left on device"):
            sandbox.deploy(sandbox.tiny(), wait=False, directory=disk)
        assert [path.name for path in disk.iterdir()] == ["full"]


def test_a_state_directory_that_cannot_be_made_is_named(sandbox: Any) -> None:
    (sandbox.root / "file").write_text("")
    sandbox.state = StateDirectory(sandbox.root / "file" / "state", sandbox.root / "run")
    with pytest.raises(CapabilityError, match=r"cannot make .*/file"):
        sandbox.deploy(sandbox.tiny())


def test_a_network_namespace_that_is_not_the_machines_first_carries_a_lab_with_qos(sandbox: Any) -> None:
    """A container, a pod: some sysctls exist in the first one alone, and `ip netns exec` shows a bare /sys, too."""
    lab, outside = sandbox.name("a"), sandbox.name("outside")
    (sandbox.work / "topology.yml").write_text(
        f"name: {lab}\nscale: {{time: 10000}}\nqos: {{preset: uec}}\n"
        "fabric: {design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 2}\n"
    )
    testbed = f"{sys.executable} -m testbed"
    verbs = ("doctor -f json >doctor.json", "deploy -q -t topology.yml", f"check -n {lab}", f"destroy -q -n {lab}")
    subprocess.run(["ip", "netns", "add", outside], check=True)
    try:
        result = subprocess.run(
            ["ip", "netns", "exec", outside, "sh", "-c", "; ".join(f"{testbed} {verb} || exit" for verb in verbs)],
            env=sandbox.environment,
            cwd=sandbox.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        subprocess.run(["ip", "netns", "del", outside], check=True)
    assert result.returncode == 0, result
    assert sandbox.leftovers() == []
    features = {item["name"]: item for item in json.loads((sandbox.work / "doctor.json").read_text())["features"]}
    neighbours = features["neighbour table"]
    assert (neighbours["status"], neighbours["required"]) == ("degraded", False)
    assert "not seen from this network namespace" in neighbours["detail"]
    assert "first network namespace" in neighbours["remedy"]
