"""The measuring tools over UET and RoCE between namespaces: over a single link, and through the switches of a lab."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perftest_sides import LINK_MTU, PATIENCE_S, TOOL, Side, captured, joined_namespaces, lab_hosts, measure, output_of
from tshark_output import run_tshark

from testbed.protocols.roce.packets.opcodes import Opcode
from testbed.protocols.uet.packets.codes import PdsType

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]

TOPOLOGY = """
name: perftest
scale: {{time: 20000}}
qos: {{preset: {preset}}}
fabric: {{design: rail-optimized, hosts: 1, segments: 2, gpus: 1, spines: 2}}
"""
PRESETS = {"roce": "nvidia", "uet": "uec"}
FABRIC = ("--rate", "20M", "--base-rtt", "10ms", "-m", "1024")
OF_FABRIC = {"roce": (*FABRIC, "--time-scale", "20000", "-u", "1"), "uet": FABRIC}
"""What the tools are told of a lab's links."""
PORTS = {"roce": "4791", "uet": "4793"}


@pytest.fixture(scope="module", params=["ipv4", "ipv6"])
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side]]:
    with joined_namespaces(request.param, "ptl") as both:
        yield both


@pytest.mark.parametrize(
    "verb", ["write", *(pytest.param(verb, marks=pytest.mark.thorough) for verb in ("read", "send"))]
)
@pytest.mark.parametrize("transport", PRESETS)
def test_bandwidth_over_a_link(sides: tuple[Side, Side], transport: str, verb: str, tmp_path: Path) -> None:
    count, pairs = {"roce": (100, 2), "uet": (200, 1)}[transport]
    words = ("-n", str(count), "-q", str(pairs), "-s", "64k", "--report_gbits")
    document = measure(*sides, tmp_path / "out.json", f"{transport}_{verb}_bw", *words)
    assert document["test_info"]["Device"] == sides[0].address
    assert document["test_info"]["Number_of_qps"] == pairs
    assert document["results"]["n_iterations"] == count
    assert 0.05 < document["results"]["BW_average"] < 20


@pytest.mark.parametrize(
    "verb", ["send", *(pytest.param(verb, marks=pytest.mark.thorough) for verb in ("write", "atomic"))]
)
@pytest.mark.parametrize("transport", PRESETS)
def test_latency_over_a_link(sides: tuple[Side, Side], transport: str, verb: str, tmp_path: Path) -> None:
    results = measure(*sides, tmp_path / "out.json", f"{transport}_{verb}_lat", "-n", "100")["results"]
    assert 5 < results["t_min"] <= results["t_typical"] <= results["percentile_99"] <= results["t_max"]


@pytest.mark.parametrize("sides", ["ipv4"], indirect=True)
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


@pytest.mark.parametrize("transport", PRESETS)
def test_a_namespace_without_a_way_to_the_server(transport: str) -> None:
    words = ["unshare", "--net", *TOOL, f"{transport}_write_bw", "10.78.0.2"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 1
    assert result.stderr == f"{transport}_write_bw: no way to 10.78.0.2: Network is unreachable\n"


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest, shared_sandbox: Any) -> Iterator[tuple[Side, Side]]:
    """Hosts of a lab whose switches are set for a transport."""
    with lab_hosts(shared_sandbox, TOPOLOGY.format(preset=PRESETS[request.param])) as both:
        yield both


@pytest.mark.frr
@pytest.mark.parametrize(
    ("hosts", "options"),
    [
        *(("roce", options) for options in ("-q 4", "-b")),
        *(("uet", options) for options in ("", "--trimming", "-b")),
        pytest.param("roce", "--recovery selective", marks=pytest.mark.thorough),
        *(pytest.param("uet", options, marks=pytest.mark.thorough) for options in ("--mode rod", "--cc both")),
    ],
    indirect=["hosts"],
)
def test_bandwidth_through_a_lab_is_that_of_its_links(
    request: pytest.FixtureRequest, hosts: tuple[Side, Side], options: str, tmp_path: Path
) -> None:
    transport = request.node.callspec.params["hosts"]
    size = ("-s", "16k", "-n", {"roce": "80", "uet": "150"}[transport], "-t", "16", "--report_gbits")
    words = (f"{transport}_write_bw", *size, *OF_FABRIC[transport], *options.split())
    average = measure(*hosts, tmp_path / "out.json", *words)["results"]["BW_average"]
    directions = 2 if "-b" in options else 1
    # more than the link carries is impossible; how near to it a busy machine comes is a figure of the benchmarks
    assert 0.003 < average / directions < 0.02, "of 20 Mbit/s"


@pytest.mark.frr
@pytest.mark.parametrize("hosts", ["uet"], indirect=True)
def test_latency_through_a_lab(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    results = measure(*hosts, tmp_path / "out.json", "uet_send_lat", "-n", "50", *OF_FABRIC["uet"])["results"]
    assert results["t_min"] <= results["t_typical"] < 20_000


def captured_run(hosts: tuple[Side, Side], transport: str, directory: Path, *words: str) -> Path:
    """Return the capture of 20 messages of 16 kB, as it is seen at their receiver."""
    near, far = hosts
    capture = directory / "run.pcap"
    with captured(far, "rail1", capture, "udp", "port", PORTS[transport]):
        size = ("-s", "16k", "-n", "20")
        measure(near, far, directory / "out.json", f"{transport}_write_bw", *size, *words, *OF_FABRIC[transport])
    return capture


@pytest.mark.frr
@pytest.mark.tshark
@pytest.mark.parametrize("hosts", ["roce"], indirect=True)
def test_a_run_over_roce_as_a_capture_shows_it(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    """`testbed decode` and tshark read a real run alike."""
    capture = captured_run(hosts, "roce", tmp_path, "-q", "2")
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
    assert {(flow["src"], flow["dst"]) for flow in data} == {(hosts[0].address, hosts[1].address)}
    assert len(data) == 2, "of two queue pairs"
    messages = 22  # and two to warm up
    assert sum(flow["payload_bytes"] for flow in data) >= messages * 16 * 1024
    assert sum(flow["packets"] for flow in flows) == len(ours)


@pytest.mark.frr
@pytest.mark.tshark
@pytest.mark.parametrize("hosts", ["uet"], indirect=True)
def test_a_run_over_uet_as_a_capture_shows_it(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    """`testbed decode` and the Wireshark dissector read a real run alike: from the first SYN to the end of the PDC."""
    capture = captured_run(hosts, "uet", tmp_path)
    decoded = output_of(sys.executable, "-m", "testbed", "decode", "--json", str(capture))
    ours = [json.loads(line) for line in decoded.splitlines()]
    fields = ("-T", "fields", "-e", "uet.type", "-e", "uet.psn", "-e", "uet.malformed")
    shown = run_tshark("uet.lua", capture, "-o", "udp.try_heuristic_first:TRUE", *fields)
    theirs = [line.split("\t") for line in shown.splitlines()]
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
