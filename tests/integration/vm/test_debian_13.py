"""Debian 13 (FRR 10.3, Python 3.13) as a newcomer meets it: a minimal system, a checkout and `./lab`.

Only the kernel and the network are this machine's. The first run builds the system and the Python environment
in it, about three minutes; both are kept in `TESTBED_TEST_CACHE`, and a later run takes about one.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from foreign_root import ForeignRoot

pytestmark = [pytest.mark.vm, pytest.mark.thorough, pytest.mark.netns, pytest.mark.timeout(1800)]

NOTICED_WITHIN_S = 2.0
STARTING_S = 3.0
"""What the command itself may take to start on a busy machine."""


def inspect(machine: ForeignRoot, *what: str) -> Any:
    return json.loads(machine.check("./lab", "inspect", *what, "-f", "json"))


def left_behind(machine: ForeignRoot) -> list[str]:
    """What a destroyed lab may have left in there. All processes but those of the question are the labs'."""
    question = "ls /run/netns /run/testbed /run/frr /var/tmp/frr /var/lib/testbed/labs 2>/dev/null; ps -e -o comm="
    known = {"python3", "env", "sh", "ps", "nsenter"}
    lines = machine.run("sh", "-c", question).stdout.split("\n")
    return [line for line in lines if line and not line.startswith("/") and line not in known]


def test_the_system_is_what_it_should_be(debian: ForeignRoot) -> None:
    assert debian.check(".venv/bin/python", "--version").startswith("Python 3.13.")
    assert debian.check("/usr/lib/frr/zebra", "--version").startswith("zebra version 10.3")


def test_the_scenario_of_the_demo(debian: ForeignRoot) -> None:
    done = debian.run("./lab", "run", "scenarios/rail-permutation.yml", "--repeat", "1", "-f", "json")
    # Whether this machine kept up, and with it the verdict, is not the subject.
    assert done.returncode in {0, 1, 2}, done.stderr
    directory = json.loads(done.stdout)["directory"]
    record = json.loads(debian.check("cat", f"{directory}/record.json"))
    assert record["schema"] == 3
    assert "rail-permutation" in debian.check("cat", f"{directory}/report.html")
    assert left_behind(debian) == []


def test_transports_are_compiled(debian: ForeignRoot) -> None:
    """By its compiler, for its Python."""
    debian.check("env", "--unset=TESTBED_PURE", ".venv/bin/python", "-m", "testbed.base.compiled", timeout_s=1500)
    code = "from testbed.protocols import is_compiled; print(is_compiled())"
    assert debian.check("env", "--unset=TESTBED_PURE", ".venv/bin/python", "-c", code).strip() == "True"


@pytest.fixture(scope="class")
def demo(debian: ForeignRoot) -> Iterator[None]:
    debian.check("./lab", "deploy", "-t", "topologies/demo.yml")
    yield
    debian.check("./lab", "destroy", "-n", "demo")
    assert left_behind(debian) == []


@pytest.mark.usefixtures("demo")
class TestDemo:
    """The demo's fabric, from deploy to destroy."""

    def test_everything_is_up(self, debian: ForeignRoot) -> None:
        assert "fail" not in debian.check("./lab", "check")
        sessions = inspect(debian, "bgp")
        assert len(sessions) == 32
        assert {(session["state"], session["bfd"]) for session in sessions} == {("Established", "up")}

    def test_mgmtd_keeps_zebra_quiet(self, debian: ForeignRoot) -> None:
        """Without it zebra wakes a hundred times a second (counted over a second, in ticks of 10 ms)."""
        pids = {node["name"]: node["pids"] for node in inspect(debian)["demo"]}
        zebra = pids["p1-spine1"]["zebra"]
        assert pids["p1-spine1"]["mgmtd"]
        switches = f"grep ^voluntary /proc/{zebra}/status"
        before, after = debian.check("sh", "-c", f"{switches}; sleep 1; {switches}").split("\n")[:2]
        assert int(after.split()[1]) - int(before.split()[1]) < 30

    @pytest.mark.parametrize("daemon", ["mgmtd", "bgpd"])
    def test_a_killed_daemon_is_seen(self, debian: ForeignRoot, daemon: str) -> None:
        victim = next(node for node in inspect(debian)["demo"] if node["name"] == "p1-spine2")
        debian.check("kill", "-9", str(victim["pids"][daemon]))
        killed = time.monotonic()
        seen = next(node for node in inspect(debian)["demo"] if node["name"] == "p1-spine2")
        assert seen["state"] == "degraded"
        assert daemon in seen["missing"]
        assert time.monotonic() - killed < NOTICED_WITHIN_S + STARTING_S
        assert debian.run("./lab", "check").returncode == 1


def test_tenants(debian: ForeignRoot) -> None:
    """An overlay converges on FRR 10, too, where the VNI of a VRF is mgmtd's: deploy waits for each planned entry."""
    debian.check("./lab", "deploy", "-t", "topologies/two-tenants.yml")
    try:
        assert "fail" not in debian.check("./lab", "check")
        bridged, routed = ("10.1.0.3", "fd00:1::3"), ("10.1.1.2", "fd00:1:0:1::2")
        for address in (*bridged, *routed):
            debian.check("./lab", "exec", "p1-s1-h1", "--", "ping", "-c", "1", "-W", "2", address)
    finally:
        debian.check("./lab", "destroy", "-n", "two-tenants")
    assert left_behind(debian) == []


def test_the_tests_of_this_project_that_concern_frr(debian: ForeignRoot) -> None:
    """On FRR 10.3: the golden configurations, that every line of them is taken, and what becomes of failures."""
    files = ["tests/golden/test_frr_golden.py", "tests/integration/netns/test_configuration.py"]
    files.append("tests/integration/netns/test_health.py")
    debian.check("./lab", "test", "--collect-only", "-q", *files, timeout_s=600)  # installs what tests need
    said = debian.check(".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
    assert " passed" in said
    assert "skipped" not in said, said
    assert left_behind(debian) == []


def test_storage_over_nfs(debian: ForeignRoot) -> None:
    """Here fio has its engine nfs, which that of Debian 12 lacks."""
    tests = "tests/integration/netns/test_storage_protocols.py"
    debian.check("apt-get", "update", "-q", timeout_s=600)
    debian.check(
        *("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qy", "--no-install-recommends"),
        *("fio", "nbdkit", "nfs-ganesha-vfs"),
        timeout_s=600,
    )
    debian.check("./lab", "test", "--collect-only", "-q", tests, timeout_s=600)  # installs what tests need
    said = debian.check(".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "nfs", tests)
    assert " passed" in said
    assert "skipped" not in said, said
    assert left_behind(debian) == []
