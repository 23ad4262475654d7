"""`vagrant up` with our own box: unattended, from a checkout to the demo's report, on a machine without a network.

Debian's Vagrant, vagrant-libvirt and libvirt, under emulation.
"""

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_vm import BUILD_TIMEOUT_S, CHECKOUT, command_line, skip_without_tools
from private_libvirt import lacking, run_beside_libvirt

from testbed.base.files import cache_directory
from testbed.vm.image import checkout

pytestmark = [pytest.mark.vm, pytest.mark.netns, pytest.mark.thorough, pytest.mark.timeout(3600)]
if "bookworm" not in Path("/etc/os-release").read_text():
    pytestmark.append(pytest.mark.may_skip)  # not every release has Vagrant

FINISHED_WITHIN_S = 15 * 60.0
TIMEOUT_S = 3000.0
ALONE = os.environ.get("CI", "").lower() in {"1", "true"} or os.environ.get("TESTBED_TEST_ALONE") == "1"
SCRIPT = """
vagrant up --provider=libvirt --no-color
vagrant ssh --no-color -c 'sudo /srv/testbed/lab list; cat /srv/testbed/results/*/record.json' >"$RECORD"
vagrant destroy --force --no-color
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Room on a disk: a box and the machine's disk take some gigabytes."""
    skip_without_tools()
    if missing := lacking():
        pytest.skip(f"apt-get install {missing}")
    cache_directory().mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="test-vagrant-", dir=cache_directory()))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def copy_of_the_checkout(target: Path) -> Path:
    """The project as somebody has it who has just fetched it."""
    with tarfile.open(fileobj=io.BytesIO(checkout.archive(CHECKOUT))) as tar:
        tar.extractall(target, filter="tar")
    return target


def test_from_a_checkout_to_the_report_of_the_demo(scratch: Path) -> None:
    box, log, record = scratch / "own.box", scratch / "log", scratch / "record"
    built = command_line("vm", "build", "--box", str(box), timeout_s=BUILD_TIMEOUT_S)
    assert built.returncode == 0, built.stderr
    project = copy_of_the_checkout(scratch / "project")
    began = time.monotonic()
    code = run_beside_libvirt(
        scratch,
        project,
        SCRIPT,
        {"TESTBED_BOX": str(box), "TESTBED_BOX_EMULATION": "1", "RECORD": str(record)},
        log=log,
        timeout_s=TIMEOUT_S,
    )
    took_s = time.monotonic() - began
    said = log.read_text(errors="replace")
    assert code == 0, said[-6000:]
    assert re.search(r"report results/ecmp-against-spraying-\S+/report\.html", said)
    assert re.search(r"nodes +8 namespaces", said), "an emulated machine has the smaller demo"
    assert "installing" not in said  # the box has it all: there is nowhere to fetch it from
    assert '"ecmp-against-spraying"' in record.read_text()
    if ALONE:
        assert took_s < FINISHED_WITHIN_S


def test_a_box_that_is_not_there(scratch: Path) -> None:
    environment = {
        **os.environ,
        "TESTBED_BOX": str(scratch / "none.box"),
        "VAGRANT_HOME": str(scratch / "vagrant"),
        "VAGRANT_DOTFILE_PATH": str(scratch / "machine"),
    }
    done = subprocess.run(
        ["vagrant", "up"], cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert f"there is no file {scratch}/none.box; ./lab vm build --box" in done.stderr
