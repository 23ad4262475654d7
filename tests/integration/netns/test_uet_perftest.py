"""The measuring tools between network namespaces: over a single link, and through the switches of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from perftest_sides import (
    DISSECTORS,
    PATIENCE_S,
    TOOL,
    Side,
    captured,
    joined_namespaces,
    lab_hosts,
    measure,
    output_of,
)

from testbed.protocols.uet.packets.codes import PdsType

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120), pytest.mark.timed]

DISSECTOR = DISSECTORS / "uet.lua"
LAB_RATE = "20M"
TOPOLOGY = """
name: perftest
scale: {time: 20000}
qos: {preset: uec}
fabric: {design: rail-optimized, hosts: 1, segments: 2, gpus: 1, spines: 2}
"""


# --- two namespaces ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ipv4", "ipv6"])
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side]]:
    with joined_namespaces(request.param, "upt") as both:
        yield both


@pytest.mark.parametrize("tool", ["uet_write_bw", "uet_read_bw", "uet_send_bw"])
def test_bandwidth_over_a_link(sides: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    document = measure(*sides, tmp_path / "out.json", tool, "-n", "200", "-s", "64k", "--report_gbits")
    assert document["test_info"]["Device"] == sides[0].address
    assert document["results"]["n_iterations"] == 200
    assert 0.05 < document["results"]["BW_average"] < 20


@pytest.mark.parametrize("tool", ["uet_send_lat", "uet_write_lat", "uet_atomic_lat"])
def test_latency_over_a_link(sides: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    results = measure(*sides, tmp_path / "out.json", tool, "-n", "200")["results"]
    assert 5 < results["t_min"] <= results["t_typical"] <= results["percentile_99"] <= results["t_max"]


def test_a_namespace_without_a_way_to_the_server() -> None:
    words = ["unshare", "--net", *TOOL, "uet_write_bw", "10.78.0.2"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 1
    assert result.stderr == "uet_write_bw: no way to 10.78.0.2: Network is unreachable\n"


# --- a lab -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(shared_sandbox: Any) -> Iterator[tuple[Side, Side]]:
    with lab_hosts(shared_sandbox, TOPOLOGY) as both:
        yield both


@pytest.mark.frr
@pytest.mark.parametrize("options", [(), ("--trimming",), ("--mode", "rod"), ("--cc", "both"), ("-b",)], ids=" ".join)
def test_bandwidth_through_a_lab_is_that_of_its_links(
    hosts: tuple[Side, Side], options: Sequence[str], tmp_path: Path
) -> None:
    fabric = ("--rate", LAB_RATE, "--base-rtt", "10ms", "-m", "1024")
    words = ("uet_write_bw", "-s", "16k", "-n", "150", "-t", "16", "--report_gbits", *fabric, *options)
    average = measure(*hosts, tmp_path / "out.json", *words)["results"]["BW_average"]
    directions = 2 if "-b" in options else 1
    # more than the link carries is impossible; how near to it a busy machine comes is a figure of the benchmarks
    assert 0.008 < average / directions < 0.02, "of 20 Mbit/s"


@pytest.mark.frr
def test_latency_through_a_lab(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    words = ("uet_send_lat", "-n", "50", "--rate", LAB_RATE, "--base-rtt", "10ms", "-m", "1024")
    results = measure(*hosts, tmp_path / "out.json", *words)["results"]
    assert results["t_min"] <= results["t_typical"] < 20_000


@pytest.mark.frr
@pytest.mark.tshark
def test_a_run_as_a_capture_shows_it(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    """`testbed decode` and the Wireshark dissector read a real run alike: from the first SYN to the end of the PDC."""
    near, far = hosts
    capture = tmp_path / "run.pcap"
    with captured(far, "rail1", capture, "udp", "port", "4793"):
        fabric = ("--rate", LAB_RATE, "--base-rtt", "10ms", "-m", "1024")
        measure(near, far, tmp_path / "out.json", "uet_write_bw", "-s", "16k", "-n", "20", *fabric)

    decoded = output_of(sys.executable, "-m", "testbed", "decode", "--json", str(capture))
    ours = [json.loads(line) for line in decoded.splitlines()]
    words = ("tshark", "-n", "-X", f"lua_script:{DISSECTOR}", "-o", "udp.try_heuristic_first:TRUE", "-r", str(capture))
    fields = ("-T", "fields", "-e", "uet.type", "-e", "uet.psn", "-e", "uet.malformed")
    theirs = [line.split("\t") for line in output_of(*words, *fields).splitlines()]
    assert len(ours) == len(theirs) > 20 * 16
    assert not any(malformed for _, _, malformed in theirs)
    packets = [item["pds"] for item in ours]
    assert [PdsType[item["type"]] for item in packets] == [int(kind, 0) for kind, _, _ in theirs]
    assert [str(item["psn"]) if "psn" in item else "" for item in packets] == [psn for _, psn, _ in theirs]
    requests = [item for item in packets if item["type"] == "RUD_REQ" and item["spdcid"] == packets[0]["spdcid"]]
    assert "SYN" in requests[0]["flags"] and "SYN" not in requests[-1]["flags"]
    psns = {(item["psn"] - requests[0]["psn"]) & 0xFFFFFFFF for item in requests}
    assert psns >= set(range(20 * 16))
    assert any(item["type"] == "CP" and item["ctl_type"] == "CLOSE_CMD" for item in packets)
