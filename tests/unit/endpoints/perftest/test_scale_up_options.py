"""Options of the tools of scale-up domains, and what they print: all else is what the lab says of its host's GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.endpoints.perftest.json_results import json_document
from testbed.endpoints.perftest.options import Options, parse_options
from testbed.endpoints.perftest.registry import TOOLS
from testbed.endpoints.perftest.results import BandwidthResult, latency_result
from testbed.endpoints.perftest.table import header_block, table_head, table_row
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.endpoint import Gpu, Spray
from testbed.protocols.scale_up.domain.host_gpus import GPUS_VARIABLE, HostGpus
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.retry import RetryConfig

LINK = LinkSettings(
    rate_bps=40_000_000,
    delay_ns=12_500_000,
    flow_control=FlowControl.PFC,
    retry=RetryConfig(outstanding_frames_max=64, replay_timer_ns=10**9),
)


def _gpu(number: int) -> Gpu:
    return Gpu(
        gpu=number,
        gpus=8,
        interfaces=["gpu1p1", "gpu1p2"],
        addresses=[(bytes([2, 0, 0, 0, 0, plane]), bytes([2, 0, 0, 0, 1, plane])) for plane in range(2)],
        link=LINK,
        plane_rates_bps=[40_000_000, 32_000_000],
        spray=Spray.EQUAL,
    )


HOST = HostGpus(
    host="p1-s1-h3",
    domain="p1-s1",
    library=Path("/var/cache/domain.so"),
    time_scale=50_000,
    rtt_ns=1_000,
    rate_bps=3_600_000_000_000,
    gpus=[_gpu(4), _gpu(5)],
)


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gpus.json"
    path.write_text(HOST.to_json())
    monkeypatch.setenv(GPUS_VARIABLE, str(path))
    return path


def options(text: str = "", tool: str = "su_write_bw") -> Options:
    return parse_options(TOOLS[tool], text.split())


def test_what_a_lab_says_of_its_gpus_comes_back_as_it_was(described: Path) -> None:
    found = HostGpus.read()
    assert found.to_json() == HOST.to_json()
    assert found.gpu(2).link.retry == LINK.retry and found.gpu(2).spray is Spray.EQUAL
    assert found.lab_rtt_ns == 50_000_000
    for number in (0, 3):
        with pytest.raises(UsageError, match=f"no GPU {number} in this host: it has 1 to 2"):
            found.gpu(number)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"gpus": [{}]}', "nonsense", HOST.to_json().replace("coarse", "fine")]
)
def test_another_file_is_no_description(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"{path}: this is no description of a host's GPUs"):
        HostGpus.read(path)


def test_rates_frames_and_control_are_the_labs(described: Path) -> None:
    given = options("--gpu 2 -F 10.0.0.1")
    assert (given.payload_bytes, given.cc, given.queues) == (4096, "pfc", 1)
    assert (given.link_rate_bps, given.base_rtt_ns) == (72_000_000, 50_000_000)
    assert (given.sizes, given.tx_depth) == ((4096,), 512)
    assert (options(tool="su_copy_bw").sizes, options(tool="su_copy_bw").tx_depth) == ((1 << 20,), 2)
    assert options(tool="su_read_lat").sizes == options(tool="su_atomic_lat").sizes == (8,)
    assert given.compared() != options("--pull", tool="su_copy_bw").compared()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--gpu 3", "there is no GPU 3 in this host: it has 1 to 2"),
        ("--gpu 0", "'0' is not a number from 1 to 1024"),
        ("-q 2", "-q: a GPU has one end, and spreads what it does over its planes itself"),
        ("-m 4096", "-m: how much a frame carries is the lab's: fabric.scale_up.coarse"),
        ("--cc nscc", "--cc: what controls the flow is the lab's: fabric.scale_up.flow_control"),
        ("--rate 400G", "--rate: rates and round trips are the lab's"),
        ("-t 1025", "'1025' is not a number from 1 to 1024"),
        ("--gpus /nowhere", "cannot read /nowhere: No such file or directory"),
    ],
)
def test_what_is_refused(argv: str, words: str, described: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        options(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_outside_of_a_lab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(GPUS_VARIABLE, raising=False)
    with pytest.raises(SystemExit):
        options()
    assert "this is no host of a lab whose fabric.scale_up has by: packets" in capsys.readouterr().err


def test_bandwidth_is_told_in_the_lab_and_each_way_of_the_modelled_system(described: Path) -> None:
    result = BandwidthResult(size=4096, iterations=100, peak=9_000_000.0, average=7_200_000.0)
    given = options("--report_gbits")
    assert table_head(given).split("MsgRate[Mpps]")[1] == "    modelled, each way[Gb/sec]    of a GPU's rate[%]"
    assert table_row(given, result).split() == ["4096", "100", "0.072000", "0.057600", "0.001758", "2880.0", "80.00"]
    assert table_row(options("-b"), result).split()[-2:] == ["1440.0", "40.00"]
    fields = json_document(given, "10.0.0.1", [result], 1)["results"]
    assert (fields["BW_modelled_each_way_Gb"], fields["share_of_gpu_rate"]) == (2880.0, 0.8)
    assert "Congestion ctrl : pfc" in header_block(given, "10.0.0.1")


def test_latency_is_told_in_modelled_round_trips(described: Path) -> None:
    given = options(tool="su_read_lat")
    result = latency_result(8, [50e6, 51e6, 55e6])
    assert "t_typical[RTT]" in table_head(given) and "usec" not in table_head(given)
    assert table_row(given, result).split()[2:5] == ["1.000", "1.100", "1.020"]
    document = json_document(given, "10.0.0.1", [result], 1)
    assert document["results"]["t_typical"] == 1.02
    assert document["test_info"]["Latency_unit"] == "RTT_modelled"
