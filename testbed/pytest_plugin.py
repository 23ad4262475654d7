"""A pytest plugin: labs that are deployed for a test and removed afterwards, and scenarios that run in one.

    @pytest.mark.topology("topologies/demo.yml", overrides={"fabric.hosts": 2})
    def test_rails(lab):
        assert lab.check()

    def test_spraying(run_scenario):
        result = run_scenario("scenarios/rail-permutation.yml", overrides={"workload.bytes": "1MB"})
        assert result.metric("jain_flows").median > 0.9

`--testbed-keep` leaves the lab of a failed test deployed; `--testbed-pool` has other machines simulate scenarios. A
machine that cannot deploy skips, saying why; with `--testbed-require`, which is for CI, it fails. A failed test shows
what the last check of its labs had found.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from testbed.api import Lab, RunOptions, ScenarioResult
    from testbed.api.pool.pool import Pool  # noqa: F401  # in the type of a key
    from testbed.base.errors import CapabilityError

_failed = pytest.StashKey[bool]()
_labs = pytest.StashKey["list[Lab]"]()
_pool = pytest.StashKey["Pool"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("testbed")
    group.addoption("--testbed-keep", action="store_true", help="leave the lab of a failed test deployed")
    group.addoption("--testbed-pool", metavar="POOL", help="simulate on these machines: pool.yml, or ssh://a,ssh://b")
    group.addoption(
        "--testbed-require",
        action="store_true",
        help="fail where this machine cannot deploy a lab, instead of skipping",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "topology(file, overrides={}): the topology of the `lab` fixture")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.stash[_failed] = True
        for lab in item.stash.get(_labs, []):
            if lab.last_check is not None and not lab.last_check:
                report.sections.append((f"testbed check of {lab.name}", str(lab.last_check)))  # type: ignore[attr-defined]
    return report


@pytest.fixture
def deploy_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """A function like `Lab.deploy` whose labs are removed after the test, whatever happens in it."""
    from testbed.api import Lab
    from testbed.base.errors import CapabilityError

    deployed: list[Lab] = []
    request.node.stash[_labs] = deployed

    def deploy(topology: str | Path, **options: object) -> Lab:
        options.setdefault("name", _lab_name(request.node.nodeid, len(deployed)))
        options.setdefault("directory", tmp_path)
        try:
            lab = Lab.deploy(topology, **options)  # type: ignore[arg-type]
        except CapabilityError as error:
            _cannot_deploy(request.config, error)
        deployed.append(lab)
        return lab

    yield deploy
    keep = request.config.getoption("--testbed-keep") and request.node.stash.get(_failed, False)
    for lab in deployed:
        if not keep:
            lab.destroy()


@pytest.fixture
def run_scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., ScenarioResult]:
    """A function like `testbed.run_scenario`, whose labs are removed and whose results go to the test's `tmp_path`."""
    from testbed.api import run_scenario as run
    from testbed.base.errors import CapabilityError

    def run_here(scenario: str | Path, **options: object) -> ScenarioResult:
        options.setdefault("results", tmp_path)
        options["options"] = _pooled(request.config, options.get("options"))  # type: ignore[arg-type]
        try:
            return run(scenario, **options)  # type: ignore[arg-type]
        except CapabilityError as error:
            _cannot_deploy(request.config, error)

    return run_here


@pytest.fixture
def lab(request: pytest.FixtureRequest, deploy_lab: Callable[..., Lab]) -> Lab:
    """The lab of the test's `topology` mark."""
    marker = request.node.get_closest_marker("topology")
    if marker is None or not marker.args:
        raise pytest.UsageError('the lab fixture needs @pytest.mark.topology("FILE.yml")')
    return deploy_lab(marker.args[0], **marker.kwargs)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _pool in config.stash:
        config.stash[_pool].__exit__()


def _pooled(config: pytest.Config, options: RunOptions | None) -> RunOptions | None:
    """Return the options with the pool of `--testbed-pool`, which is opened for the first simulation that asks."""
    from testbed.record.record import Backend

    text = config.getoption("--testbed-pool")
    if text is None or options is None or options.backend is not Backend.SIMULATION or options.pool is not None:
        return options
    if _pool not in config.stash:
        from testbed.api.pool.pool import Pool

        config.stash[_pool] = Pool.open(text, Backend.SIMULATION)
    return replace(options, pool=config.stash[_pool])


def _cannot_deploy(config: pytest.Config, error: CapabilityError) -> NoReturn:
    """Skip the test, or fail it where the machine was required to deploy; either says what is missing."""
    why = f"this machine cannot deploy a lab: {error.message}"
    if config.getoption("--testbed-require"):
        pytest.fail(f"{why}\n  hint: {error.hint}" if error.hint else why, pytrace=False)
    pytest.skip(why)


def _lab_name(test: str, number: int) -> str:
    """A name for a lab of this test and process: runs beside each other do not meet, nor do several labs of a test."""
    return f"t{zlib.crc32(f'{test} {os.getpid()} {number}'.encode()):08x}"
