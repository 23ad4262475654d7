"""What all tests share: tests that need a capability skip without it, and nothing of ours may stay behind.

In CI (`CI=true`) a capability that must be there makes a skip a failure; a test of something that a CI
machine may lack says so with `@pytest.mark.may_skip`. What tests left behind fails the run, and what others made
meanwhile does not (`machines/leftovers.py`). Where nobody can tell, it fails the run in CI and under `./lab test`,
which have the machine to themselves, and is a note elsewhere.
"""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from file_marks import may_have
from golden_files import OPTION as REGENERATE_GOLDENS
from headless_browser import BROWSERS
from leftovers import Leftovers, Snapshot, left_since, look, mark_this_run
from long_files import LONG_FILES
from outcomes import leave_out_passed, note_outcomes
from side_by_side import SideBySide, begun_first
from side_effects import SideEffects

from testbed.base.errors import CapabilityError
from testbed.base.quick_start import COLLECT_AT_OBJECTS
from testbed.lab.core.drivers.probing.kernel_probe import probe_kernel
from testbed.lab.core.drivers.probing.machine import find_frr, require_root
from testbed.protocols import is_compiled

# As the command line does. A process has a million objects once all tests are there: to look through them takes a third
# of a second (`pytest_collection_finish`).
gc.set_threshold(COLLECT_AT_OBJECTS)
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
if not IN_CI:  # there hypothesis has a profile of its own, which draws the same examples each time
    # How long an example takes says something of the machine, and nothing of the code.
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")
ALONE = IN_CI or os.environ.get("TESTBED_TEST_ALONE") == "1"
PRIVILEGED = ("netns", "frr", "docker")
TOOLS = {
    "tshark": (("tshark",), "tshark"),
    "ovs": (("ovs-vswitchd",), "openvswitch-switch"),
    "nbdkit": (("nbdkit",), "nbdkit"),
    "fio": (("fio",), "fio"),
    "browser": (BROWSERS, BROWSERS[0]),
}
"""Markers of tests that run a program: its names, and the package that has it."""

ENGINE = ("dockerd", "containerd", "runc")
"""What tests of containers start an engine of their own with."""

STARTERS = ("process", *PRIVILEGED, "image", "vm", "labvm", "bench", "soak", "scenarios")
"""Markers of tests that may start processes, and change settings of the machine."""
_side_effects = SideEffects()
_privileged_ran = pytest.StashKey[bool]()
_runners = pytest.StashKey[str]()
"""The directory of `RUNNERS`, of the run that made it: a run inside a test inherits the variable of the one outside."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        REGENERATE_GOLDENS, action="store_true", help="rewrite the files that golden tests compare with; see git diff"
    )


def pytest_configure(config: pytest.Config) -> None:
    if IN_CI and config.getoption(REGENERATE_GOLDENS):
        raise pytest.UsageError(f"{REGENERATE_GOLDENS} is for people, who review the difference, not for CI")
    if not _is_worker(config):
        mark_this_run()
        os.environ[RUNNERS] = config.stash[_runners] = tempfile.mkdtemp(prefix="testbed-runners-")
    note_outcomes(config)
    config.addinivalue_line("markers", "interpreted: replaces what a compiled module does not look up (TESTBED_PURE=1)")
    config.addinivalue_line("markers", "may_skip: a CI machine may lack what this test needs")
    for marker, (programs, _) in TOOLS.items():
        config.addinivalue_line("markers", f"{marker}: runs {programs[0]}")


@cache
def missing(capability: str) -> str:
    """Why this machine cannot run tests with the marker `capability`; "" if it can."""
    try:
        require_root()
        if capability == "frr":
            find_frr()
        if capability == "docker" and (lacking := [name for name in ENGINE if shutil.which(name) is None]):
            return f"{', '.join(lacking)} not installed: apt-get install docker.io"
    except CapabilityError as error:
        return error.message
    kernel = probe_kernel()
    needed = ("namespace.net", "namespace.mount", "link.veth", "link.bridge", "qdisc.htb")
    lacking = {name: why for name in needed if (why := kernel[name])}
    return ", ".join(f"{name}: {why}" for name, why in lacking.items())


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("interpreted") is not None and is_compiled():
        pytest.skip("the transports are compiled: TESTBED_PURE=1 runs this")
    for marker, (programs, package) in TOOLS.items():
        if item.get_closest_marker(marker) is not None and not any(map(shutil.which, programs)):
            pytest.skip(f"{programs[0]} is not installed: apt-get install {package}")
    for capability in PRIVILEGED:
        if item.get_closest_marker(capability) is None:
            continue
        if why := missing(capability):
            pytest.skip(f"{capability}: {why}")
        item.config.stash[_privileged_ran] = True
    _side_effects.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that has started a process or changed the machine, it or a fixture, without a marker of those that
    do."""
    try:
        yield
    finally:
        effects = _side_effects.end()
    if effects and not any(item.get_closest_marker(name) for name in STARTERS):
        pytest.fail(f"a test that starts or changes {', '.join(effects)} has the marker process", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    needs = any(item.get_closest_marker(name) for name in (*PRIVILEGED, *TOOLS))
    must_run = needs and not item.get_closest_marker("may_skip")
    if IN_CI and must_run and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure in CI: {reason}"
    return report  # type: ignore[return-value]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file none of whose tests `-m` can choose is not read, unless it is named: it takes longer than many a tier."""
    expression = config.option.markexpr
    if not expression or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    if collection_path in _named(config):
        return None
    return None if may_have(expression, collection_path.read_text()) else True


@cache
def _named(config: pytest.Config) -> frozenset[Path]:
    """The files and directories that the command line names."""
    here = config.invocation_params.dir
    return frozenset((here / argument.partition("::")[0]).absolute() for argument in config.args)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    for item in items:
        if item.nodeid.partition("::")[0] in LONG_FILES:
            item.add_marker(pytest.mark.gate)
    leave_out_passed(config, items)
    items[:] = [items[place] for place in begun_first([item.nodeid.partition("::")[0] for item in items])]


def pytest_collection_finish() -> None:
    """What is there before the first test stays."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide | None:
    """For `--dist loadgroup`: groups of xdist's own (3.8) do nothing under pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # by the number of tests: that says little of how long they take
    return SideBySide(config, log)


RUNNERS = "TESTBED_TEST_RUNNERS"
"""Variable that names a directory with a file for each process that runs tests, by its number."""

_before = pytest.StashKey[Snapshot]()
_left = pytest.StashKey[Leftovers]()


def _is_worker(config: pytest.Config) -> bool:
    """Whether this process runs some of the tests for another one (pytest-xdist)."""
    return hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the first test of all: what is there now is not of this run, and what it starts will be known as its."""
    if not _is_worker(session.config):
        session.stash[_before] = look()
    elif directory := os.environ.get(RUNNERS):
        Path(directory, str(os.getpid())).touch()


def pytest_unconfigure(config: pytest.Config) -> None:
    if directory := config.stash.get(_runners, ""):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended, and says whether it ran privileged tests."""
    if getattr(node, "workeroutput", {}).get("privileged"):
        node.config.stash[_privileged_ran] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Compare the machine before the first and after the last test, if any of them was privileged."""
    config = session.config
    privileged = config.stash.get(_privileged_ran, False)
    if _is_worker(config):
        config.workeroutput["privileged"] = privileged  # type: ignore[attr-defined]
        return
    if not privileged:
        return
    runners = [int(path.name) for path in Path(config.stash[_runners]).iterdir()]
    config.stash[_left] = left = left_since(session.stash[_before], runners)
    judged = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if (left.ours or (left.unknown and ALONE)) and session.exitstatus in judged:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR  # tests that fail may be run again; this stays


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(_left, Leftovers())
    for things, blame, certain in (
        (left.ours, "the tests left behind", True),
        (left.unknown, "appeared meanwhile, of these tests or of another user of this machine", ALONE),
    ):
        if things:
            terminalreporter.section(blame, red=certain)
            terminalreporter.write_line("\n".join(things))
