"""What the measuring tools print and write: header, tables, JSON and figures."""

import json
import math
import re
import statistics
from pathlib import Path

import pytest

from testbed.endpoints.perftest.json_results import json_document, write_json
from testbed.endpoints.perftest.options import parse_options
from testbed.endpoints.perftest.registry import TOOLS
from testbed.endpoints.perftest.results import BandwidthResult, bandwidth_result, latency_result, peak_bandwidth
from testbed.endpoints.perftest.table import address_block, header_block, table_head, table_row
from testbed.run.programs.perftest import PerftestTest, parse_report

BANDWIDTH = BandwidthResult(size=65536, iterations=1000, peak=250_000_000.0, average=187_500_000.0)
LATENCY = latency_result(8, [float(value) for value in range(10_000, 110_000, 100)])

HEADER = """\
---------------------------------------------------------------------------------------
                                   UET_Write BW Test
 Dual-port       : OFF              Device          : 10.0.0.1
 Number of qps   : 4                Transport type  : UET
 Connection type : ROD              Using SRQ       : OFF
 TX depth        : 16               Congestion ctrl : both
 Mtu             : 1024[B]          Path selection  : bitmap
 Link type       : Ethernet         Security        : OFF
 Data ex. method : Ethernet         Trimming        : ON
---------------------------------------------------------------------------------------"""

ROCE_HEADER = """\
---------------------------------------------------------------------------------------
                                   RoCE_Read BW Test
 Dual-port       : OFF              Device          : 10.0.0.1
 Number of qps   : 4                Transport type  : RoCE
 Connection type : RC               Using SRQ       : OFF
 TX depth        : 16               Congestion ctrl : dcqcn
 Mtu             : 1024[B]          Parameters      : nvidia
 Link type       : Ethernet         Loss recovery   : selective
 Data ex. method : Ethernet         Out of order    : ON
---------------------------------------------------------------------------------------"""

GBITS = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]    MsgRate[Mpps]
 65536      1000           2.00               1.50                  0.002861"""

MIB = """\
 #bytes     #iterations    BW peak[MiB/sec]   BW average[MiB/sec]   MsgRate[Mpps]
 65536      1000           238.42             178.81                0.002861"""

TIMES = """\
 #bytes  #iterations  t_min[usec]   t_max[usec]   t_typical[usec]   t_avg[usec]   t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000         10.00         109.90        59.95             59.95         28.87           108.90                 109.80"""  # noqa: E501


def test_the_header_says_what_is_measured() -> None:
    argv = ["-q", "4", "--mode", "rod", "-t", "16", "--cc", "both", "--paths", "bitmap", "-m", "1024", "--trimming"]
    assert header_block(parse_options(TOOLS["uet_write_bw"], argv), "10.0.0.1") == HEADER
    both = header_block(parse_options(TOOLS["uet_read_bw"], ["-b"]), "10.0.0.1")
    assert "UET_Read Bidirectional BW Test" in both
    assert "remote address: 10.0.0.2 job 7" in address_block((["10.0.0.1 job 7"], ["10.0.0.2 job 7"]))


def test_the_header_of_roce() -> None:
    text = "-q 4 -t 16 -m 1024 --parameters nvidia --recovery selective --ooo"
    assert header_block(parse_options(TOOLS["roce_read_bw"], text.split()), "10.0.0.1") == ROCE_HEADER
    ends = ["10.0.0.1 QPN 0x000011", "10.0.0.1 QPN 0x000012"], ["10.0.0.2 QPN 0x000021", "10.0.0.2 QPN 0x000022"]
    assert address_block(ends).splitlines()[:-1] == [
        " local address: 10.0.0.1 QPN 0x000011",
        " local address: 10.0.0.1 QPN 0x000012",
        " remote address: 10.0.0.2 QPN 0x000021",
        " remote address: 10.0.0.2 QPN 0x000022",
    ]


def test_the_json_of_roce_says_how_its_queue_pairs_were_set() -> None:
    options = parse_options(TOOLS["roce_write_bw"], ["-q", "2", "-u", "9", "--cc", "none", "--tclass", "98"])
    test_info = json_document(options, "10.0.0.1", [BANDWIDTH], 1)["test_info"]
    assert (test_info["test"], test_info["Transport_type"]) == ("RoCE_Write_BW_Test", "RoCE")
    assert (test_info["Connection_type"], test_info["Number_of_qps"], test_info["QP_timeout"]) == ("RC", 2, 9)
    assert (test_info["Congestion_control"], test_info["Parameters"]) == ("none", "")
    assert test_info["Traffic_class"] == 96


@pytest.mark.parametrize(("argv", "table"), [(["--report_gbits"], GBITS), ([], MIB)])
def test_the_bandwidth_table(argv: list[str], table: str) -> None:
    options = parse_options(TOOLS["uet_write_bw"], argv)
    assert f"{table_head(options)}\n{table_row(options, BANDWIDTH)}" == table


def test_the_latency_table() -> None:
    options = parse_options(TOOLS["uet_send_lat"], [])
    assert f"{table_head(options)}\n{table_row(options, LATENCY)}" == TIMES


def test_bandwidth_as_json(tmp_path: Path) -> None:
    options = parse_options(TOOLS["uet_write_bw"], ["--report_gbits", "--out_json_file", str(tmp_path / "x.json")])
    write_json(options.json_file, json_document(options, "10.0.0.1", [BANDWIDTH], 97.126))
    document = json.loads(options.json_file.read_text())
    assert list(document) == ["test_info", "results", "CPU_util"]
    assert document["CPU_util"] == 97.13
    assert document["results"] == {
        "MsgSize": 65536,
        "n_iterations": 1000,
        "BW_peak": 2.0,
        "BW_average": 1.5,
        "MsgRate": 0.002861,
    }
    assert document["test_info"] == {
        "test": "UET_Write_BW_Test",
        "Dual_port": "OFF",
        "Device": "10.0.0.1",
        "Number_of_qps": 1,
        "Transport_type": "UET",
        "Connection_type": "RUD",
        "Using_SRQ": "OFF",
        "TX_depth": 128,
        "Mtu": 4096,
        "Link_type": "Ethernet",
        "Data_ex_method": "Ethernet",
        "Bidirectional": False,
        "Congestion_control": "nscc",
        "Path_selection": "reps",
        "Security": "OFF",
        "Trimming": False,
        "BW_unit": "Gb/sec",
    }


def test_latency_as_json() -> None:
    options = parse_options(TOOLS["uet_send_lat"], [])
    assert json_document(options, "10.0.0.1", [LATENCY], 1)["results"] == {
        "MsgSize": 8,
        "n_iterations": 1000,
        "t_min": 10.0,
        "t_max": 109.9,
        "t_typical": 59.95,
        "t_avg": 59.95,
        "t_stdev": 28.87,
        "percentile_99": 108.9,
        "percentile_99.9": 109.8,
    }


def test_several_sizes_are_a_list_in_json() -> None:
    options = parse_options(TOOLS["uet_write_bw"], ["-a"])
    results = json_document(options, "10.0.0.1", [BANDWIDTH, BANDWIDTH], 1)["results"]
    assert [row["MsgSize"] for row in results] == [65536, 65536]


def test_the_average_counts_from_the_first_message_to_the_last_completion() -> None:
    result = bandwidth_result(1000, 5_000, [6_000, 7_000, 9_000], 2)
    assert result.average == pytest.approx(3000 / 4e-6)
    assert result.messages_per_s == pytest.approx(3 / 4e-6)


def test_the_peak_is_that_of_the_best_run() -> None:
    finished = [1_000, 2_000, 2_500, 3_000, 9_000]
    assert peak_bandwidth(1000, 0, finished, 2) == pytest.approx(2000 / 1e-6)
    assert peak_bandwidth(1000, 0, finished, 100) == pytest.approx(5000 / 9e-6)
    assert bandwidth_result(1000, 0, finished, 2, peak=False).peak == 0


def test_completions_of_one_instant_make_no_infinite_peak() -> None:
    result = bandwidth_result(1000, 0, [1_000, 1_000, 1_000], 1)
    assert math.isfinite(result.peak)
    assert result.peak >= result.average


def test_latency_figures_agree_with_the_textbook() -> None:
    times = [float(value * value) for value in range(1, 1002)]
    result = latency_result(1, times)
    assert result.typical == statistics.median(times) / 1e3
    assert result.average == pytest.approx(statistics.fmean(times) / 1e3)
    assert result.stdev == pytest.approx(statistics.pstdev(times) / 1e3)
    assert (result.least, result.most) == (times[0] / 1e3, times[-1] / 1e3)
    assert result.percentile_99 == times[990] / 1e3
    assert latency_result(1, [5.0]).percentile_99_9 == 5 / 1e3


def test_both_directions_together() -> None:
    both = BANDWIDTH.plus(BANDWIDTH)
    assert (both.average, both.peak, both.iterations) == (375e6, 500e6, 1000)


ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$", re.MULTILINE)
"""A line of results as scripts look for it: size, iterations, peak, average, messages."""
SETTING = re.compile(r"(\S[^:]*?)\s*:\s(\S+(?: \S+)*)")
"""Pairs of the header, two a line with spaces between them."""


@pytest.mark.parametrize("argv", [["--report_gbits"], []])
@pytest.mark.parametrize("tool", ["uet_write_bw", "roce_send_bw", "roce_read_bw"])
def test_scripts_for_perftest_read_bandwidths(tool: str, argv: list[str]) -> None:
    options = parse_options(TOOLS[tool], argv)
    slow = BandwidthResult(size=4096, iterations=20, peak=309_375.0, average=253_000.0)
    text = "\n".join(
        (
            header_block(options, "10.0.0.1"),
            table_head(options),
            *(table_row(options, one) for one in (BANDWIDTH, slow)),
        )
    )
    found = ROW.findall(text)
    assert [(int(size), int(count)) for size, count, *_ in found] == [(65536, 1000), (4096, 20)]
    factor = 8 / 1e9 if argv else 1 / 2**20
    for (_, _, peak, average, _), result in zip(found, (BANDWIDTH, slow), strict=True):
        near = 0.005 if argv or result is BANDWIDTH else 0.05  # two decimals of MiB/s
        assert float(average) == pytest.approx(result.average * factor, rel=near)
        assert float(peak) == pytest.approx(result.peak * factor, rel=near)
    settings = {key.strip(): value for key, value in SETTING.findall(text.split("#bytes")[0])}
    assert (settings["Number of qps"], settings["Device"], settings["Data ex. method"]) == ("1", "10.0.0.1", "Ethernet")
    document = json.dumps(json_document(options, "10.0.0.1", [BANDWIDTH], 3.0), indent=2)
    for printed, written in ((text, ""), ("", document)):
        report = parse_report(PerftestTest.WRITE_BW, printed, written, gigabits=bool(argv))
        assert report.bandwidths[0].average_bps == pytest.approx(BANDWIDTH.average * 8, rel=0.005)
        assert report.bandwidths[0].size_bytes == 65536


def test_scripts_for_perftest_read_latencies() -> None:
    options = parse_options(TOOLS["roce_write_lat"], [])
    text = f"{table_head(options)}\n{table_row(options, LATENCY)}"
    cells = text.splitlines()[1].split()
    assert [float(cell) for cell in cells[2:]] == [10.0, 109.9, 59.95, 59.95, 28.87, 108.9, 109.8]
    document = json_document(options, "10.0.0.1", [LATENCY], 3.0)
    assert document["test_info"]["test"] == "RoCE_Write_Latency_Test"
    for printed, written in ((text, ""), ("", json.dumps(document, indent=2))):
        (found,) = parse_report(PerftestTest.WRITE_LAT, printed, written).latencies
        assert (found.average_us, found.p99_us, found.p99_9_us) == (59.95, 108.9, 109.8)


def test_the_json_has_the_keys_of_perftests_own() -> None:
    """Those of a file of perftest 25.01, but for what is of a NIC alone."""
    theirs = json.loads((Path(__file__).parents[3] / "data" / "perftest" / "ib_send_bw.json").read_text())
    ours = json_document(parse_options(TOOLS["roce_send_bw"], []), "10.0.0.1", [BANDWIDTH], 3.0)
    of_a_nic = {"PCIe_relax_order", "ibv_wr_API", "CQ_Moderation", "GID_index", "Max_inline_data", "rdma_cm_QPs"}
    assert set(theirs["test_info"]) - set(ours["test_info"]) == of_a_nic | {"Use_ROCm_memory"}
    assert set(theirs["results"]) <= set(ours["results"])
    words = (theirs["test_info"]["test"], ours["test_info"]["test"])
    assert words == ("Send_BW_Test", "RoCE_Send_BW_Test")


def test_low_bandwidths_keep_their_digits() -> None:
    """perftest prints six decimals of an average below 0.1 Gbit/s."""
    slow = BandwidthResult(size=4096, iterations=20, peak=309_375.0, average=253_000.0)
    row = table_row(parse_options(TOOLS["uet_write_bw"], ["--report_gbits"]), slow)
    assert row.split()[2:4] == ["0.002475", "0.002024"]
