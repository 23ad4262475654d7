"""What `inspect qos` says of the shipped topologies that have it, against texts that people have read."""

import json
from pathlib import Path
from typing import Any

import pytest
from golden_files import Golden

from testbed.base.errors import TestbedError
from testbed.cli.labs.qos import print_document
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.qos.view import qos_document, threshold_rows
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
NAMES = ("rail-qos", "uec-spray", "qos-overrides")


def document(name: str, **options: Any) -> dict[str, Any]:
    lab = load_topology(TOPOLOGIES / f"{name}.yml")
    return qos_document(lab, plan_lab(lab, k=1000), **options)


@pytest.mark.parametrize("name", NAMES)
def test_the_text(name: str, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    print_document(document(name))
    text = "".join(line.rstrip() + "\n" for line in capsys.readouterr().out.splitlines())
    golden(f"qos/{name}.txt").check(text)


def test_the_json_has_each_threshold_as_written_in_bytes_and_in_both_times() -> None:
    found = json.loads(json.dumps(document("rail-qos")))
    (switch,) = (profile for profile in found["profiles"] if profile["of"] == "switch")
    assert (switch["rate_bps"], switch["lab_rate_bps"]) == (400_000_000_000, 400_000_000)
    assert (switch["base_rtt_ns"], switch["lab_base_rtt_ns"], switch["bdp_bytes"]) == (12_000, 12_000_000, 600_000)
    rdma = next(item for item in switch["classes"] if item["name"] == "rdma")
    assert rdma["thresholds"]["kmin"] == {"written": "0.2bdp", "bytes": 120_000, "lab_ns": 2_400_000, "real_ns": 2400}
    assert rdma["thresholds"]["xoff"]["written"] == "auto"
    assert (rdma["dscp"], rdma["priority"], rdma["pmax"], rdma["scheduling"]) == ([26], 3, 1.0, "weighted")
    assert len(switch["ports"]) == 32
    assert len(found["buffers"]) == 6
    assert found["reaction_ns"] == 2_000_000


def test_every_port_is_in_one_profile() -> None:
    for name in NAMES:
        lab = load_topology(TOPOLOGIES / f"{name}.yml")
        ports = [port for profile in document(name)["profiles"] for port in profile["ports"]]
        assert sorted(ports) == sorted(str(end) for link in lab.links for end in (link.a, link.b))


def test_only_wanted_nodes_are_shown() -> None:
    found = document("qos-overrides", wanted=lambda node: node == "ss1")
    assert {port.partition(":")[0] for profile in found["profiles"] for port in profile["ports"]} == {"ss1"}
    assert [buffer["node"] for buffer in found["buffers"]] == ["ss1"]


def test_a_row_for_each_threshold() -> None:
    rows = [row for profile in document("uec-spray")["profiles"] for row in threshold_rows(profile)]
    assert {row.threshold for row in rows} == {"reserved", "limit", "kmin", "kmax (1)"}


def test_a_lab_without_qos_says_how_to_get_it() -> None:
    with pytest.raises(TestbedError, match="demo has no qos") as caught:
        document("demo")
    assert "qos: {preset: uec}" in caught.value.hint
