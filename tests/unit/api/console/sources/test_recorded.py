"""Runs of records are played back: on the lab that they were measured on, coloured by what was sampled of each port."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.queries import BASE_ROUTES
from testbed.api.console.sources.recorded import RecordedLab, run_address, shown_directory
from testbed.api.console.sources.state import LinkWord
from testbed.api.console.view import ViewCall
from testbed.base.errors import RecordError, TestbedError
from testbed.lab.core.deploy.records.lab_record import encode_lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.record.port_samples import METRICS, PortSamples, samples_path, write_port_samples
from testbed.record.record import Backend, Record
from testbed.record.samples import RunEvent, Series
from testbed.record.store import RECORD_FILE, load_record, write_record

ROOT = Path(__file__).parents[5]
RECORDS = ROOT / "tests/data/records"
BASE = "/api/runs/results~x/0/1"
UPLINK, PEER = "p1-s1-rail1:uplink1", "p1-spine1:down1"


def results(directory: Path, name: str, change: Callable[[Record], Record] = lambda record: record) -> Path:
    """A directory of results with a record of the tests' data."""
    found = directory / "results-x"
    found.mkdir()
    write_record(change(load_record(RECORDS / f"{name}.json")), found / RECORD_FILE)
    return found


def opened(directory: Path, point: int = 0, run: int = 1) -> RecordedLab:
    return RecordedLab.open(directory, point, run, base=BASE, topologies=[directory.parent])


def with_events(*events: RunEvent) -> Callable[[Record], Record]:
    def change(record: Record) -> Record:
        (point,) = record.points
        runs = [replace(run, events=list(events)) for run in point.runs]
        return replace(record, points=[replace(point, runs=runs)])

    return change


def sampled(directory: Path, *, port: str = UPLINK) -> None:
    columns = {name: np.full((3, 1), 5, np.int32) for name in METRICS}
    columns["use"] = np.array([[100], [200], [900]], np.int32)
    samples = PortSamples(at_s=np.array([0.1, 0.2, 0.3]), ports=(port,), columns=columns)
    write_port_samples(samples, samples_path(directory / RECORD_FILE, "", 1))


def test_a_shipped_topology_is_found_by_its_name(tmp_path: Path) -> None:
    found = opened(results(tmp_path, "permutation"))
    described = found.described()
    assert (described["live"], described["clock"], described["write"]) == (False, "run", False)
    assert {UPLINK, PEER} <= set(found.shape.places)
    assert described["span"][0] == 0.0 and described["span"][1] > 0


def test_an_inline_topology_is_in_the_record_itself(tmp_path: Path) -> None:
    found = opened(results(tmp_path, "rdma-latency"))
    assert "leaf1:up1" in found.shape.places and found.name == "rdma-latency"


def test_a_simulated_lab_is_that_of_the_simulator(tmp_path: Path) -> None:
    """Its switches obey pauses at once. As one of this machine it could not be: that takes buffers for milliseconds."""
    lab = load_topology(ROOT / "topologies/dcqcn-victim.yml")
    with pytest.raises(TestbedError, match="of buffer at k = 1"):
        plan_lab(lab, k=1)

    def simulated(record: Record) -> Record:
        (point,) = record.points
        runs = [replace(run, ports=[], series=[], events=[]) for run in point.runs]
        point = replace(point, runs=runs, lab=replace(point.lab, name=lab.name, k=1))
        scenario = replace(record.scenario, topology={"file": "dcqcn-victim.yml"})
        environment = replace(record.environment, backend=Backend.SIMULATION)
        return replace(record, environment=environment, points=[point], scenario=scenario)

    found = opened(results(tmp_path, "permutation", simulated))
    assert "leaf1:up" in found.shape.places


def test_the_lab_beside_a_record_comes_first(tmp_path: Path) -> None:
    """The shipped file may have changed since, or be of another machine."""
    directory = results(tmp_path, "permutation")
    lab = load_topology(ROOT / "topologies/demo.yml")
    (directory / "labs").mkdir()
    (directory / "labs/kept.json").write_text(json.dumps(encode_lab(lab) | {"name": "kept"}))
    assert opened(directory).shape.model.name == "kept"


def test_a_topology_with_other_ports_is_not_the_one(tmp_path: Path) -> None:
    directory = results(tmp_path, "silent-failure")  # of a file that is not shipped
    shutil.copy(ROOT / "topologies/six-by-four.yml", tmp_path / "rail-pod.yml")
    with pytest.raises(RefusedRequest, match="with the ports that were measured") as refused:
        opened(directory)
    assert refused.value.status == 404


@pytest.mark.parametrize("name", ["../secret.yml", "a/../../secret.yml", "/etc/hostname"])
def test_the_name_of_a_topology_is_no_path(name: str, tmp_path: Path) -> None:
    """Without the guard the file would be read: it has the lab's very topology."""

    def elsewhere(record: Record) -> Record:
        return replace(record, scenario=replace(record.scenario, topology={"file": name, "set": {}}))

    shutil.copy(ROOT / "topologies/demo.yml", tmp_path / "secret.yml")
    below = tmp_path / "below"
    below.mkdir()
    with pytest.raises(RefusedRequest, match="is not found"):
        opened(results(below, "permutation", elsewhere))


def test_links_are_not_followed(tmp_path: Path) -> None:
    directory = results(tmp_path, "permutation")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / RECORD_FILE).symlink_to(directory / RECORD_FILE)
    with pytest.raises(RecordError, match="link"):
        opened(tmp_path / "other")


@pytest.mark.parametrize(("point", "run"), [(1, 1), (-1, 1), (0, 0), (0, 99)])
def test_a_run_that_the_record_lacks(point: int, run: int, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest) as refused:
        opened(results(tmp_path, "permutation"), point, run)
    assert refused.value.status == 404


def test_each_moment_has_what_was_sampled_then(tmp_path: Path) -> None:
    directory = results(tmp_path, "permutation")
    sampled(directory)
    found = opened(directory)
    port = found.shape.places[UPLINK]
    moments = [found.moment(t) for t in (0.0, 0.1, 0.15, 0.25, 0.3, 99.0)]
    assert [int(one.frame.columns["use"][port]) for one in moments if one] == [0, 100, 100, 200, 900, 900]
    assert found.moment(-1.0) is None
    other = found.shape.places[PEER]
    assert int(found.now().frame.columns["use"][other]) == -1, "what was not sampled is unknown, and not nothing"
    series = found.series(["use", "errors"], [port], 0.1, 0.2)
    assert series.values["use"][:, 0].tolist() == [100, 200] and set(series.values["errors"][:, 0]) == {-1}
    total = found.total("use", found.shape.of_networks([]), 0.0, 1.0)
    assert total.values["use"][:, 0].tolist() == [0, 100, 200, 900]


def test_samples_of_ports_that_the_lab_lacks_are_left_out(tmp_path: Path) -> None:
    directory = results(tmp_path, "permutation")
    sampled(directory, port="<img src=x>:rail1")
    assert int(opened(directory).now().frame.columns["use"].max()) == -1


def test_a_run_of_microseconds_is_as_long_as_it_was(tmp_path: Path) -> None:
    """As a simulated one is: its moments are no thousandths of seconds."""

    def short(record: Record) -> Record:
        (point,) = record.points
        curve = Series(
            name=f"queue:{UPLINK}:data", title="", unit="byte", at_s=[0.0, 2e-4, 4e-4], values=[0.0, 5000.0, 0.0]
        )
        run = replace(point.runs[0], elapsed_s=5e-4, series=[curve], events=[])
        return replace(record, points=[replace(point, runs=[run])])

    found = opened(results(tmp_path, "permutation", short))
    assert found.span == (0.0, 5e-4)
    port = found.shape.places[UPLINK]
    moments = [found.moment(t) for t in (1e-4, 3e-4, 4.5e-4)]
    assert [int(one.frame.columns["queue"][port]) for one in moments if one] == [0, 5000, 0]
    call = cast(ViewCall, SimpleNamespace(base=found, query={"metrics": "queue"}))
    routes = {route.path: route.handler for route in BASE_ROUTES}
    times = cast(dict[str, list[float]], routes["history/total"](call))["t"]
    assert len(set(times)) == len(times) and times[-1] == 5e-4


def test_without_samples_curves_and_totals_are_played(tmp_path: Path) -> None:
    def with_curve(record: Record) -> Record:
        (point,) = record.points
        values = [0.0, 5000.0, None]
        curve = Series(name=f"queue:{UPLINK}:data", title="", unit="byte", at_s=[0.0, 1.0, 2.0], values=values)
        return replace(record, points=[replace(point, runs=[replace(run, series=[curve]) for run in point.runs])])

    found = opened(results(tmp_path, "permutation", with_curve))
    assert not found.sampled
    port = found.shape.places[UPLINK]
    moments = [found.moment(t) for t in (0.5, 1.5, 2.5)]
    assert [int(one.frame.columns["queue"][port]) for one in moments if one] == [0, 5000, 0]
    load = next(one for one in found.run.ports if f"{one.node}:{one.interface}" == UPLINK)
    assert int(found.now().frame.columns["use"][port]) == round(1000 * load.utilisation)


def test_what_happened_changes_links_and_nodes(tmp_path: Path) -> None:
    events = (
        RunEvent(at_s=0.5, kind="link-down", target=UPLINK),
        RunEvent(at_s=0.8, kind="undone-link-down", target=UPLINK),
        RunEvent(at_s=1.0, kind="node-kill", target="p1-spine1"),
        RunEvent(at_s=1.2, kind="touched", target=UPLINK, detail="link-set loss 0.5 by testbed link set (process 7)"),
        RunEvent(at_s=1.3, kind="detected", target="nobody"),
    )
    found = opened(results(tmp_path, "permutation", with_events(*events)))
    port, peer, spine = found.shape.places[UPLINK], found.shape.places[PEER], found.shape.nodes["p1-spine1"]

    def state(t: float) -> tuple[int, int, str]:
        moment = found.moment(t)
        return moment.state.links[port], moment.state.links[peer], moment.state.nodes[spine]

    assert found.span is not None and found.span[1] > 1.5
    assert state(0.0) == (LinkWord.UP, LinkWord.UP, "running")
    assert state(0.7) == (LinkWord.DOWN, LinkWord.DOWN, "running")
    assert state(0.95) == (LinkWord.UP, LinkWord.UP, "running")
    assert state(1.1)[1:] == (LinkWord.DOWN, "off")
    assert state(found.span[1])[0] == LinkWord.CHANGED
    assert [event["kind"] for event in found.events(0.6, 1.25)] == ["undone-link-down", "node-kill", "touched"]


def test_an_address_has_the_directory_as_one_part() -> None:
    address = run_address("results/demo-2026", 2, 1)
    assert address == "/api/runs/results~demo-2026/2/1"
    assert shown_directory(address.split("/")[3]) == "results/demo-2026"


def test_the_report_of_a_record_is_a_page_for_a_frame_that_runs_nothing(tmp_path: Path) -> None:
    call = cast(ViewCall, SimpleNamespace(base=opened(results(tmp_path, "permutation"))))
    routes = {route.path: route.handler for route in BASE_ROUTES}
    answer = routes["report"](call)
    assert answer.media_type == "text/html"
    assert b"<html" in answer.body
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'self'" in policy
    assert "script-src" not in policy and "default-src 'none'" in policy and "sandbox" in policy
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
