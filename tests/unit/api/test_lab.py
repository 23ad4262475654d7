"""How a lab is deployed from Python: the keyword arguments of `Lab.deploy`, and what becomes of them."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_lab import record_lab

from testbed.api import DeployKeywords, Lab
from testbed.api import lab as api_lab
from testbed.cli.labs.deploy import deploy
from testbed.lab.core.deploy import scale
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S, DeployOptions
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import resolve_scale

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "demo.yml"


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, StateDirectory, DeployOptions, object]]:
    """What was deployed: name, state, options and whom steps are told. Nothing here touches the machine."""
    found = []

    def deploy_lab(model: Any, state: StateDirectory, options: DeployOptions, notify: object) -> SimpleNamespace:
        found.append((model.name, state, options, notify))
        return SimpleNamespace(lab=SimpleNamespace(name=model.name))

    monkeypatch.setattr(api_lab, "deploy_lab", deploy_lab)
    monkeypatch.setattr(api_lab, "resolve_scale", lambda model, state, **_: SimpleNamespace(k=1000.0))
    return found


def test_keywords_reach_the_deploy(deployed: list[Any], tmp_path: Path) -> None:
    state, said = StateDirectory(tmp_path / "state", tmp_path / "run"), lambda *_: None
    Lab.deploy(
        TOPOLOGY,
        name="mine",
        overrides={"fabric.hosts": 2},
        timeout_s=7.0,
        reconfigure=True,
        directory=tmp_path,
        state=state,
        notify=said,
    )
    options = DeployOptions(k=1000.0, timeout_s=7.0, reconfigure=True, directory=tmp_path)
    assert deployed == [("mine", state, options, said)]


def test_every_keyword_may_be_left_out(deployed: list[Any]) -> None:
    Lab.deploy(TOPOLOGY)
    [(_, _, options, _)] = deployed
    assert options == DeployOptions(k=1000.0, timeout_s=DEFAULT_TIMEOUT_S)


def test_a_lab_that_takes_anothers_place_has_a_time_scale_of_its_own(
    deployed: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api_lab, "resolve_scale", resolve_scale)
    monkeypatch.setattr(scale, "machine_profile", lambda state, *, measure: scale.REFERENCE)
    state, empty = (StateDirectory(tmp_path / name, tmp_path / f"{name}.run") for name in ("state", "empty"))
    before = record_lab(state, TOPOLOGY, k=123_456.0).k
    for where, reconfigure in ((state, False), (state, True), (empty, False)):
        Lab.deploy(TOPOLOGY, state=where, reconfigure=reconfigure)
    kept, replaced, anew = (options.k for _, _, options, _ in deployed)
    assert kept == before, "deploying twice changes nothing"
    assert replaced == anew != before


def test_the_time_scale_of_a_replaced_lab_is_seen_in_a_dry_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "machine_profile", lambda state, *, measure: scale.REFERENCE)
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "run"))
    shown = []
    for recorded in (False, True):
        if recorded:
            record_lab(StateDirectory(), TOPOLOGY, k=123_456.0)
        for words in ((), ("--reconfigure",)):
            deploy.main(["-t", str(TOPOLOGY), "--dry-run", *words], standalone_mode=False)
            shown.append(capsys.readouterr().out)
    nothing, nothing_replaced, kept, replaced = shown
    assert nothing == nothing_replaced == replaced != kept


def test_a_keyword_that_there_is_not_is_refused(deployed: list[Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
        Lab.deploy(TOPOLOGY, timeout=7.0)  # type: ignore[call-arg]
    assert deployed == []


def test_the_keywords_are_those_of_a_resolved_model() -> None:
    parameters = inspect.signature(Lab.deploy_model).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == set(DeployKeywords.__annotations__)


def test_the_keywords_are_those_of_a_mininet_network() -> None:
    pytest.importorskip("mininet", reason="needs Mininet")
    from testbed import mininet

    parameters = inspect.signature(mininet._build_model).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} == set(DeployKeywords.__annotations__)
