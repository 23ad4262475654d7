"""The wheel as a newcomer meets it on Debian 12, Debian 13 and Ubuntu 24.04: pip into an empty environment, the line of
the doctor, and all of the quick start.

Each system is a minimal one, of which only the kernel and the network are this machine's. It is kept in
`TESTBED_TEST_CACHE` with the packages that the line has installed in it. Ubuntu's archive is not to be reached from
everywhere; where it is not, its tests skip.
"""

from collections.abc import Iterator

import pytest
from built_wheel import ROOT, build_wheel, copy_sources
from ci_jobs import FABRIC_GUIDE
from doc_blocks import Block, read_blocks
from doc_runner import is_run
from foreign_root import CACHE, CHECKOUT, DEBIAN, UBUNTU, ForeignRoot, build_root

from testbed.base.version import __version__

pytestmark = [
    pytest.mark.vm,
    pytest.mark.thorough,
    pytest.mark.netns,
    pytest.mark.may_skip,
    pytest.mark.timeout(2400),
    pytest.mark.xdist_group("releases"),
]

RELEASES = {"bookworm": DEBIAN, "trixie": DEBIAN, "noble": UBUNTU}
PYTHON = {"bookworm": "3.11", "trixie": "3.13", "noble": "3.12"}
BARE = ("ca-certificates", "mount", "python3", "python3-venv")
HERE = "/root/fabric"
PROGRAMS = "/root/testbed/bin"
INSTALLING_S = 1200.0
MEASURED = (0, 1, 2)
"""Whether this machine kept up, and with it the verdict, is not the subject."""


class Newcomer:
    """Somebody with a wheel on a system that has Python alone."""

    def __init__(self, machine: ForeignRoot, suite: str) -> None:
        self.suite = suite
        self._machine = machine
        machine.check("mkdir", "-p", HERE)

    def run(self, line: str, *, codes: tuple[int, ...] = (0,), timeout_s: float = 600.0) -> str:
        """Run a line of a shell in a directory of one's own; what it says on both streams."""
        done = self._machine.run(
            *("env", "-C", HERE, f"PATH={PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            *("sh", "-e", "-c", line),
            timeout_s=timeout_s,
        )
        assert done.returncode in codes, f"{self.suite}: {line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module", params=RELEASES)
def newcomer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """An empty environment with the wheel. The system has nothing of a checkout."""
    suite = request.param
    if why := RELEASES[suite].lacks(suite):
        pytest.skip(why)
    directory = tmp_path_factory.mktemp(suite)
    (directory / "given").mkdir()
    build_wheel(copy_sources(directory / "sources"), directory / "given" / "dist")
    with (
        build_root(suite, BARE, CACHE, archive=RELEASES[suite], name=f"bare-{suite}") as root,
        ForeignRoot(root, directory / "given") as machine,
    ):
        (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # as in a container: no service starts
        (root / "usr/sbin/policy-rc.d").chmod(0o755)
        found = Newcomer(machine, suite)
        found.run("rm -rf ./* && python3 -m venv --clear /root/testbed")
        found.run(f"pip install --quiet {CHECKOUT}/dist/testbed-*.whl", timeout_s=INSTALLING_S)
        try:
            yield found
        finally:
            machine.run(f"{PROGRAMS}/testbed", "destroy", "--all", "--yes")


def test_it_is_installed_into_an_empty_environment(newcomer: Newcomer) -> None:
    assert f"Python {PYTHON[newcomer.suite]}." in newcomer.run("python3 --version")
    assert newcomer.run("testbed --version") == f"testbed {__version__}\n"
    listed = newcomer.run("pip list --format freeze").lower()
    assert [name for name in ("docker==", "paramiko==", "cairosvg==", "pytest==") if name in listed] == []


def test_what_needs_no_package_of_the_system(newcomer: Newcomer) -> None:
    assert "files written" in newcomer.run("testbed examples .")
    assert "demo.yml: valid" in newcomer.run("testbed validate topologies/demo.yml")
    newcomer.run("testbed demo --backend simulation -q")
    newcomer.run("ls results/*/report.html && rm -r results")


def test_the_line_of_the_doctor_installs_what_labs_need(newcomer: Newcomer) -> None:
    """A system that is kept has all but one of them."""
    newcomer.run("dpkg --purge iperf3 && apt-get update -q", timeout_s=INSTALLING_S)
    line = newcomer.run("testbed doctor --install-line")
    assert line.startswith("env DEBIAN_FRONTEND=noninteractive apt-get ") and " iperf3" in line
    newcomer.run("$(testbed doctor --install-line)", timeout_s=INSTALLING_S)
    assert newcomer.run("testbed doctor --install-line") == ""
    assert "Labs can run on this machine" in newcomer.run("testbed doctor")


def quick_start() -> Block:
    """The first lab of the README."""
    (block,) = (one for one in read_blocks(ROOT / "README.md") if "./lab deploy -t topologies/demo.yml" in one.text)
    return block


def test_the_quick_start_of_the_readme(newcomer: Newcomer) -> None:
    block = quick_start()
    commands = block.commands()
    assert len(commands) > 8
    for command in commands:
        line = block.rule("instead", command) or command
        if more := block.rule("with", command):
            line = f"{line} {more}"
        codes = MEASURED if is_run(line) else (0,)
        newcomer.run(line.replace("./lab", "testbed"), codes=codes)
        if after := block.rule("after", command):
            newcomer.run(after.replace("./lab", "testbed"))
    newcomer.run("ls results/*/report.html demo.html x.pcap")
    assert newcomer.run("ls /run/netns /var/lib/testbed/labs").split() == ["/run/netns:", "/var/lib/testbed/labs:"]


def test_the_demo(newcomer: Newcomer) -> None:
    said = newcomer.run("testbed demo -q -o demo", codes=MEASURED, timeout_s=1200.0)
    assert "report demo/ecmp-against-spraying-" in said
    newcomer.run("ls demo/*/report.html")


def test_a_test_of_a_fabric(newcomer: Newcomer) -> None:
    (test,) = (block.text for block in read_blocks(FABRIC_GUIDE) if block.file == "test_fabric.py")
    newcomer.run(f"pip install --quiet {CHECKOUT}/dist/testbed-*.whl pytest pytest-timeout", timeout_s=INSTALLING_S)
    newcomer.run(f"cat >test_fabric.py <<'END'\n{test}END\n")
    assert "3 passed" in newcomer.run("python -m pytest -q -p no:cacheprovider --testbed-require test_fabric.py")
