"""The provider of libfabric in the libfabric of Debian 12, of Debian 13 and of Ubuntu 24.04, releases 1.17 and 2.1: one
that was compiled here, and one that is compiled there.

Each system is a minimal one in a directory, in which ranks of a launch run (chroot); the endpoints are those of a lab
of this machine. Ubuntu's archive is not to be reached from everywhere; where it is not, its tests skip.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign_root import CACHE, DEBIAN, UBUNTU, build_root
from sandbox import Sandbox

from testbed.endpoints.libfabric.library import FILE_NAME, FLAGS
from testbed.lab.core.deploy.live import RunningLab
from testbed.run.launch import LaunchOptions, LaunchResult, RankLine, launch_ranks

pytestmark = [
    pytest.mark.vm,
    pytest.mark.thorough,
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.may_skip,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("releases"),
]

ROOT = Path(__file__).parents[3]
CHECK = ROOT / "tests/support/libfabric/fabric_check.c"
SOURCES = ROOT / "testbed/native/libfabric"
RELEASES = {"bookworm": DEBIAN, "trixie": DEBIAN, "noble": UBUNTU}
LIBFABRIC = {"bookworm": "1.17.0", "trixie": "2.1.0", "noble": "1.17.0"}
PACKAGES = ("gcc", "libc6-dev", "libfabric-bin", "libfabric-dev")
THERE = "/srv/provider"
ENTER = 'mkdir -p "$0$LAB_UET_SOCKET" && mount --bind "$LAB_UET_SOCKET" "$0$LAB_UET_SOCKET" && exec chroot "$0" "$@"'
"""Enters the root with the directory of the endpoints' sockets, mounted for the rank alone."""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    return shared_sandbox.deploy(shared_sandbox.model("r"), k=1000.0).lab


@pytest.fixture(scope="module", params=RELEASES)
def root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A system with libfabric, and in it the provider and the check of it, compiled by its compiler."""
    suite = request.param
    if why := RELEASES[suite].lacks(suite):
        pytest.skip(why)
    with build_root(suite, PACKAGES, CACHE, archive=RELEASES[suite], name=f"libfabric-{suite}") as found:
        there = found / THERE.lstrip("/")
        shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(SOURCES, there)
        shutil.copy(CHECK, there)
        sources = [f"{THERE}/{path.name}" for path in sorted(SOURCES.glob("*.c"))]
        in_root(found, "gcc", *FLAGS, *sources, "-o", f"{THERE}/{FILE_NAME}", "-lpthread")
        in_root(found, "gcc", "-std=gnu11", "-O1", f"{THERE}/{CHECK.name}", "-o", f"{THERE}/check", "-lfabric")
        assert f"libfabric: {LIBFABRIC[suite]}" in in_root(found, "fi_info", "--version")
        try:
            yield found
        finally:
            shutil.rmtree(there)


def in_root(root: Path, *words: str) -> str:
    done = subprocess.run(["chroot", str(root), *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def launched(lab: RunningLab, root: Path, *words: str, env: dict[str, str]) -> tuple[LaunchResult, list[RankLine]]:
    """Run a program of the root on the first host and the last."""
    lines: list[RankLine] = []
    command = ["unshare", "--mount", "--propagation=private", "sh", "-e", "-c", ENTER, str(root), *words]
    hosts = (lab.plan.hosts[0].node, lab.plan.hosts[-1].node)
    options = LaunchOptions(transport="libfabric", hosts=hosts, timeout_s=120.0, env=env)
    return launch_ranks(lab, command, options, on_line=lines.append), lines


@pytest.mark.parametrize("compiled", ["here", "there"])
def test_the_provider_is_loaded_and_all_of_it_works(lab: RunningLab, root: Path, compiled: str) -> None:
    env = {} if compiled == "here" else {"FI_PROVIDER_PATH": THERE}
    listed, lines = launched(lab, root, "fi_info", "-p", "uet", env=env)
    text = "\n".join(line.text for line in lines)
    assert listed.exit_code == 0 and "provider: uet" in text and "type: FI_EP_RDM" in text, text
    for words in ([], ["ordered"]):
        result, lines = launched(lab, root, f"{THERE}/check", *words, env=env)
        said = [line.text for line in lines]
        assert result.exit_code == 0 and said.count("ok all") == 2, said
        assert result.rail_bytes > 2 << 20, "the bytes crossed the rails"
