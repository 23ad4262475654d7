"""The fixtures of the plugin in somebody else's tests."""

from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: plugin
scale: {time: 10000}
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1, routing: {bfd: off}}
"""

SCENARIO = """
name: tiny
topology: {file: small.yml}
workload: {kind: permutation, bytes: 100kB}
repeat: {runs: 1}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a topology file, whose labs go to the sandbox."""
    for name in ("TESTBED_STATE_DIR", "TESTBED_RUN_DIR", "PYTHONPATH"):
        monkeypatch.setenv(name, sandbox.environment[name])
    (pytester.path / "small.yml").write_text(TOPOLOGY)
    return pytester


def _run(project: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    project.makepyfile(source)
    return project.runpytest_subprocess("-p", "no:cacheprovider", "-q", *arguments, timeout=280)


def test_a_lab_is_there_for_a_test_and_gone_after_it(project: pytest.Pytester, sandbox: Any) -> None:
    result = _run(
        project,
        """
        import pytest

        @pytest.mark.topology("small.yml", overrides={"fabric.hosts": 3})
        def test_lab(lab):
            assert lab.check().exit_code == 0
            assert lab.node("p1-s1-h3").run(["cat", "/proc/sys/net/ipv4/ip_forward"]).stdout.strip()
            assert lab.node("p1-s1-h3").address("rail1").startswith("10.")

        def test_two(deploy_lab):
            first = deploy_lab("small.yml")
            second = deploy_lab("small.yml", overrides={"fabric.hosts": 3})
            assert first.name.startswith("t") and first.name != second.name
            assert first.check().exit_code == second.check().exit_code == 0

        @pytest.mark.topology("small.yml")
        def test_failing(lab):
            assert lab is None
        """,
    )
    result.assert_outcomes(passed=2, failed=1)
    assert sandbox.state.names() == []
    assert sandbox.leftovers() == []


@pytest.mark.thorough
def test_a_lab_of_a_failed_test_can_be_kept(project: pytest.Pytester, sandbox: Any) -> None:
    result = _run(
        project,
        """
        import pytest

        @pytest.mark.topology("small.yml")
        def test_failing(lab):
            assert lab is None
        """,
        "--testbed-keep",
    )
    result.assert_outcomes(failed=1)
    kept = sandbox.state.names()
    assert len(kept) == 1
    assert {path.name for path in Path("/run/netns").iterdir() if path.name.startswith(f"{kept[0]}-")}


@pytest.mark.thorough
def test_scenarios_run_on_labs_of_their_own_and_on_one_that_is_up(project: pytest.Pytester, sandbox: Any) -> None:
    """Both through the Python API: the fixture is `testbed.run_scenario`, the lab's method is `Lab.run`."""
    (project.path / "tiny.yml").write_text(SCENARIO)
    result = _run(
        project,
        """
        import pytest

        def test_its_own(run_scenario, tmp_path):
            result = run_scenario("tiny.yml", overrides={"fabric.hosts": 3})
            (point,) = result.record.points
            assert point.lab.hosts == 3
            assert sorted(channel.received_bytes for run in point.runs for channel in run.channels) == [100_000] * 3
            assert result.metric("aggregate_share").median > 0
            assert result.directory.parent == tmp_path

        @pytest.mark.topology("small.yml")
        def test_one_that_is_up(lab):
            result = lab.run("tiny.yml")
            (point,) = result.record.points
            assert (point.lab.name, point.lab.hosts) == (lab.name, 2)
            assert sum(channel.received_bytes for run in point.runs for channel in run.channels) == 200_000
            assert result.directory is None
            assert lab.check().exit_code == 0
        """,
    )
    result.assert_outcomes(passed=2)
    assert sandbox.state.names() == []
    assert sandbox.leftovers() == []


@pytest.mark.thorough
def test_a_failed_test_shows_the_rows_of_the_check_that_failed(project: pytest.Pytester, sandbox: Any) -> None:
    result = _run(
        project,
        """
        import pytest

        @pytest.mark.topology("small.yml")
        def test_down(lab):
            assert lab.check()
            lab.set_link("p1-s1-rail1", "uplink1", up=False)
            assert lab.check().exit_code == 0
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*assert <ExitCode.FAIL: 1> == 0*",
            "*testbed check of t*",
            "t*: * of * tests passed",
            "fail * links: *",
            "*p1-s1-rail1:uplink1*",
        ]
    )
    assert "pass     " not in result.stdout.str()
    assert sandbox.state.names() == []


WITHOUT_FRR = """
    import pytest
    from testbed.lab.core.deploy import lifecycle
    from testbed.lab.core.drivers.probing.machine import find_frr

    @pytest.fixture(autouse=True)
    def no_frr(monkeypatch):
        monkeypatch.setattr(lifecycle, "find_frr", lambda: find_frr(directories=()))

    @pytest.mark.topology("small.yml")
    def test_lab(no_frr, lab):
        pytest.fail("deployed without FRR")

    def test_scenario(no_frr, run_scenario):
        run_scenario("tiny.yml")
"""


@pytest.mark.thorough
def test_a_machine_without_frr_skips_with_the_reason(project: pytest.Pytester, sandbox: Any) -> None:
    (project.path / "tiny.yml").write_text(SCENARIO)
    result = _run(project, WITHOUT_FRR, "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*this machine cannot deploy a lab: FRR is not installed*"])
    assert sandbox.state.names() == []


@pytest.mark.thorough
def test_a_machine_that_must_deploy_fails_with_the_reason(project: pytest.Pytester, sandbox: Any) -> None:
    (project.path / "tiny.yml").write_text(SCENARIO)
    result = _run(project, WITHOUT_FRR, "--testbed-require")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(errors=1, failed=1)  # the lab is a fixture's, the scenario is run by the test
    result.stdout.fnmatch_lines(
        ["*this machine cannot deploy a lab: FRR is not installed*", "*hint: apt-get install frr*"]
    )
    assert sandbox.state.names() == []


def test_the_fixture_says_what_it_needs(project: pytest.Pytester) -> None:
    result = _run(project, "def test_lab(lab): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*the lab fixture needs @pytest.mark.topology("FILE.yml")*'])
