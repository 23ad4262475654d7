"""The measuring tools over RoCE between network namespaces: over a single link, and through the switches of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perftest_sides import (
    LINK_MTU,
    PATIENCE_S,
    TOOL,
    Side,
    captured,
    joined_namespaces,
    lab_hosts,
    measure,
    output_of,
)
from tshark_output import run_tshark

from testbed.protocols.roce.packets.opcodes import Opcode

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120), pytest.mark.timed]

LAB_RATE = "20M"
FABRIC = ("--rate", LAB_RATE, "--base-rtt", "10ms", "--time-scale", "20000", "-m", "1024", "-u", "1")
TOPOLOGY = """
name: perftest
scale: {time: 20000}
qos: {preset: nvidia}
fabric: {design: rail-optimized, hosts: 1, segments: 2, gpus: 1, spines: 2}
"""


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    with joined_namespaces("ipv4", "rpt") as both:
        yield both


@pytest.fixture(scope="module")
def sides_of_ipv6() -> Iterator[tuple[Side, Side]]:
    with joined_namespaces("ipv6", "rpt") as both:
        yield both


@pytest.mark.parametrize("tool", ["roce_write_bw", "roce_read_bw", "roce_send_bw"])
def test_bandwidth_over_a_link(sides: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    words = ("-n", "100", "-s", "64k", "-q", "2", "--report_gbits")
    document = measure(*sides, tmp_path / "out.json", tool, *words)
    assert document["test_info"]["Device"] == sides[0].address
    assert document["test_info"]["Number_of_qps"] == 2
    assert document["results"]["n_iterations"] == 100
    assert 0.05 < document["results"]["BW_average"] < 20


@pytest.mark.parametrize("tool", ["roce_send_lat", "roce_write_lat", "roce_atomic_lat"])
def test_latency_over_a_link(sides: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    results = measure(*sides, tmp_path / "out.json", tool, "-n", "100")["results"]
    assert 5 < results["t_min"] <= results["t_typical"] <= results["percentile_99"] <= results["t_max"]


@pytest.mark.parametrize("tool", ["roce_write_bw", "roce_send_lat"])
def test_over_ipv6(sides_of_ipv6: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    document = measure(*sides_of_ipv6, tmp_path / "out.json", tool, "-n", "50")
    assert document["test_info"]["Device"] == sides_of_ipv6[0].address
    assert document["results"]["n_iterations"] == 50


def test_a_link_that_is_too_short_is_refused_with_both_figures(sides: tuple[Side, Side]) -> None:
    """Each side looks at its own link; what one finds both say."""
    near, far = sides
    shorten = ["ip", "link", "set", "eth0", "mtu"]
    for side in sides:
        assert side.spawn([*shorten, "4000"]).wait(PATIENCE_S) == 0
    try:
        server = far.spawn([*TOOL, "roce_write_bw", "-i", far.address])
        client = near.spawn([*TOOL, "roce_write_bw", far.address])
        said = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in (client, server)]
    finally:
        for side in sides:
            assert side.spawn([*shorten, str(LINK_MTU)]).wait(PATIENCE_S) == 0
    assert (client.returncode, server.returncode) == (1, 1)
    problem = "a path MTU of 4096 bytes needs a link MTU of 4156, and that to the other side is 4000: -m 2048 fits"
    assert said == [f"roce_write_bw: {problem}\n", f"roce_write_bw: the other side says: {problem}\n"]


def test_a_namespace_without_a_way_to_the_server() -> None:
    words = ["unshare", "--net", *TOOL, "roce_write_bw", "10.78.0.2"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 1
    assert result.stderr == "roce_write_bw: no way to 10.78.0.2: Network is unreachable\n"


# --- a lab -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(shared_sandbox: Any) -> Iterator[tuple[Side, Side]]:
    with lab_hosts(shared_sandbox, TOPOLOGY) as both:
        yield both


@pytest.mark.frr
@pytest.mark.parametrize("options", [("-q", "4"), ("--recovery", "selective"), ("-b",)], ids=" ".join)
def test_bandwidth_through_a_lab_is_that_of_its_links(
    hosts: tuple[Side, Side], options: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("roce_write_bw", "-s", "16k", "-n", "80", "-t", "16", "--report_gbits", *FABRIC, *options)
    average = measure(*hosts, tmp_path / "out.json", *words)["results"]["BW_average"]
    directions = 2 if "-b" in options else 1
    # more than the link carries is impossible; how near to it a busy machine comes is a figure of the benchmarks
    assert 0.008 < average / directions < 0.02, "of 20 Mbit/s"


@pytest.mark.frr
@pytest.mark.tshark
def test_a_run_as_a_capture_shows_it(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    """`testbed decode` and tshark read a real run alike."""
    near, far = hosts
    capture = tmp_path / "run.pcap"
    with captured(far, "rail1", capture, "udp", "port", "4791"):
        measure(near, far, tmp_path / "out.json", "roce_write_bw", "-s", "16k", "-n", "20", "-q", "2", *FABRIC)

    decode = (sys.executable, "-m", "testbed", "decode", "--json")
    ours = [json.loads(line)["roce"] for line in output_of(*decode, str(capture)).splitlines()]
    names = ("infiniband.bth.opcode", "infiniband.bth.psn", "roce.icrc_good", "roce.retransmitted")
    columns = [word for name in names for word in ("-e", name)]
    theirs = [line.split("\t") for line in run_tshark("roce.lua", capture, "-T", "fields", *columns).splitlines()]
    assert len(ours) == len(theirs) > 20 * 16
    assert theirs == [
        [
            str(int(Opcode[item["opcode"]])),
            str(item["psn"]),
            str(int(item["icrc_good"])),
            str(int(item["retransmitted"])),
        ]
        for item in ours
    ]
    assert all(item["icrc_good"] for item in ours)

    flows = json.loads(output_of(*decode, "--summary", str(capture)))
    data = [flow for flow in flows if flow["payload_bytes"]]
    assert {(flow["src"], flow["dst"]) for flow in data} == {(near.address, far.address)}
    assert len(data) == 2, "of two queue pairs"
    messages = 22  # and two to warm up
    assert sum(flow["payload_bytes"] for flow in data) >= messages * 16 * 1024
    assert sum(flow["packets"] for flow in flows) == len(ours)
