"""The Vagrantfile without a machine: both providers' settings are such, and our box is one to Vagrant."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_vm import CHECKOUT

from testbed.cli.scenarios.demo import SCENARIO
from testbed.cli.scenarios.named_files import read_sweeps
from testbed.vm.emulator import Emulator
from testbed.vm.image.build import DISK, INITRAMFS, KERNEL, VmImage
from testbed.vm.image.vagrant_box import write_box

pytestmark = [
    pytest.mark.vm,
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("vagrant") is None, reason="apt-get install vagrant vagrant-libvirt"),
]

TIMEOUT_S = 120.0
NOWHERE = "http://127.0.0.1:1"
"""Where nobody offers boxes: nothing is fetched."""
PROVIDERS = ("libvirt", "virtualbox")
Vagrant = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def vagrant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vagrant:
    """Vagrant on a copy of the Vagrantfile, with a VirtualBox that can say its version."""
    monkeypatch.setenv("TESTBED_CACHE_DIR", str(tmp_path / "cache"))
    project = tmp_path / "project"
    for directory in ("home", "project", "bin", "cache"):
        (tmp_path / directory).mkdir()
    shutil.copy(CHECKOUT / "Vagrantfile", project)
    manage = tmp_path / "bin/VBoxManage"
    manage.write_text("#!/bin/sh\necho 7.0.6r155176\n")
    manage.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "VAGRANT_HOME": str(tmp_path / "vagrant"),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
        "VAGRANT_SERVER_URL": NOWHERE,
    }

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["vagrant", *arguments, "--no-color"],
            cwd=project,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    return run


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("emulated", ["0", "1"])
def test_its_settings_are_known_to_the_provider(vagrant: Vagrant, provider: str, emulated: str) -> None:
    done = vagrant("validate", VAGRANT_DEFAULT_PROVIDER=provider, TESTBED_BOX_EMULATION=emulated)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_setting_that_is_none_would_be_seen(vagrant: Vagrant, provider: str, tmp_path: Path) -> None:
    file = tmp_path / "project/Vagrantfile"
    file.write_text(file.read_text().replace(f"{provider}.memory", f"{provider}.memori"))
    done = vagrant("validate", VAGRANT_DEFAULT_PROVIDER=provider)
    assert (done.returncode, "shouldn't exist: memori" in done.stderr) == (1, True)


@pytest.mark.parametrize(("asked", "box"), [({}, "debian/bookworm64"), ({"TESTBED_BOX": "some/box"}, "some/box")])
def test_virtualbox_gets_a_box_that_there_is_for_it(vagrant: Vagrant, asked: dict[str, str], box: str) -> None:
    """Of Debian 13 Debian publishes one for libvirt alone."""
    done = vagrant("up", "--provider=virtualbox", **asked)
    assert f"Box '{box}' could not be found" in done.stdout
    assert f"{NOWHERE}/{box}" in done.stderr


def test_our_box_is_one_to_vagrant(vagrant: Vagrant, tmp_path: Path) -> None:
    """And what it says of its kernel is known to the provider."""
    for name in (DISK, KERNEL, INITRAMFS):
        (tmp_path / name).write_bytes(b"content")
    copy = "import shutil, sys; shutil.copyfile(sys.argv[-2], sys.argv[-1])"
    copying = Emulator(program=(), image_tool=(sys.executable, "-c", copy), version="")
    box = tmp_path / "own.box"
    write_box(copying, VmImage(directory=tmp_path, kernel_version="7.3"), box)
    added = vagrant("box", "add", "--name", "testbed", str(box))
    assert added.returncode == 0, added.stderr
    assert "testbed (libvirt, 0)" in vagrant("box", "list").stdout
    valid = vagrant("validate", TESTBED_BOX=str(box), VAGRANT_DEFAULT_PROVIDER="libvirt")
    assert valid.returncode == 0, valid.stderr


def test_variables_of_the_demo_are_those_that_it_takes() -> None:
    """An emulated machine runs a smaller one, and says so by a variable, which nobody would miss."""
    (line,) = re.findall(r"export (TESTBED_\w+)='([^']*)'", (CHECKOUT / "Vagrantfile").read_text())
    commands = json.loads((CHECKOUT / "tests/golden/commands.json").read_text())
    assert line[0] in {option.get("variable") for option in commands["testbed demo"].values()}
    (sweep,) = read_sweeps([CHECKOUT / SCENARIO], line[1].split())
    assert {len(lab.hosts) for lab in sweep.labs.values()} == {4}
