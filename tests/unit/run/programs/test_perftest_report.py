"""Reports of perftest: captured on rxe between two namespaces, and through two switches of a lab with every latency
listed (25.01), and of linux-rdma/perftest issue 216 (4.5)."""

from pathlib import Path
from typing import Any

import pytest

from testbed.run.programs.perftest import (
    MEBIBYTES,
    PerftestReport,
    PerftestReportError,
    PerftestTest,
    complaint,
    parse_latencies_us,
    parse_report,
)
from testbed.run.programs.perftest_flows import PerftestJob

DATA = Path(__file__).parents[3] / "data/perftest"


def captured(name: str) -> str:
    path = DATA / name
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("test", "size", "iterations", "average_gbps", "peak_gbps", "pairs"),
    [
        (PerftestTest.READ_BW, 4096, 40, 0.007419, 0.008988, "2"),
        (PerftestTest.SEND_BW, 4096, 20, 0.002024, 0.002475, "1"),
        (PerftestTest.ATOMIC_BW, 8, 20, 0.000019, 0.000019, "1"),
    ],
)
def test_bandwidth_alike_from_file_and_table(
    test: PerftestTest, size: int, iterations: int, average_gbps: float, peak_gbps: float, pairs: str
) -> None:
    for report in (
        parse_report(test, captured(f"{test}.out"), captured(f"{test}.json")),
        parse_report(test, captured(f"{test}.out")),
        parse_report(test, "", captured(f"{test}.json")),
    ):
        (found,) = report.bandwidths
        assert (found.size_bytes, found.iterations) == (size, iterations)
        assert found.average_bps == pytest.approx(average_gbps * 1e9)
        assert found.peak_bps == pytest.approx(peak_gbps * 1e9)
        assert report.settings["Number_of_qps"] == pairs
        assert report.settings["Device"] == "mnr-h1-eth1"
        assert report.settings["Link_type"] == "Ethernet"


@pytest.mark.parametrize("test", [PerftestTest.WRITE_LAT, PerftestTest.SEND_LAT])
def test_latency_alike_from_file_and_table(test: PerftestTest) -> None:
    written = parse_report(test, "", captured(f"{test}.json"))
    printed = parse_report(test, captured(f"{test}.out"))
    assert written.latencies == printed.latencies
    (found,) = written.latencies
    assert found.size_bytes == 64 and found.iterations == 20
    assert found.min_us is not None and found.p99_us is not None and found.max_us is not None
    assert found.min_us < found.average_us < found.p99_us <= found.max_us


LISTED = {
    PerftestTest.READ_LAT: "ib_read_lat",
    PerftestTest.ATOMIC_LAT: "ib_atomic_lat",
    PerftestTest.WRITE_LAT: "ib_write_lat-unsorted",
    PerftestTest.SEND_LAT: "ib_send_lat-unsorted",
}


@pytest.mark.parametrize(("test", "name"), LISTED.items())
def test_every_latency_is_listed_before_the_table(test: PerftestTest, name: str) -> None:
    """Two headings stand around the list; the table leaves the two longest out, and calls the second the longest."""
    text = captured(f"{name}.out")
    samples = parse_latencies_us(text)
    (table,) = parse_report(test, text).latencies
    assert table.iterations == 20 and len(samples) == 19, "the times between messages"
    ordered = sorted(samples)
    assert table.min_us == pytest.approx(ordered[0], rel=1e-5)
    assert table.max_us == pytest.approx(ordered[-2], rel=1e-5)
    assert table.typical_us == pytest.approx(ordered[8], rel=1e-5), "the median of 17"
    assert table.p99_us == table.max_us
    assert table.average_us == pytest.approx(sum(ordered[:-2]) / 17, rel=1e-5)


def test_a_list_that_is_printed_twice_is_read_once() -> None:
    """Where `--report-unsorted` implies `--report-histogram`: the same again, sorted, without the two longest."""
    text = captured("ib_read_lat.out")
    samples = parse_latencies_us(text)
    again = "".join(f"{number}, {value:g}\n" for number, value in enumerate(sorted(samples)[:-2], start=1))
    head, line, rest = text.rpartition("-" * 87 + "\n #bytes")
    assert parse_latencies_us(f"{head}#, usec\n{again}{line}{rest}") == samples


def test_a_list_that_is_cut_short_is_none() -> None:
    text = captured("ib_read_lat.out")
    end = text.index("19, ")
    for length in (end, end - 1, end + 3, text.index("#, usec"), 0):
        assert parse_latencies_us(text[:length]) == ()
    assert parse_latencies_us(text.replace("7, 39688.4\n", "")) == (), "one is missing"
    assert parse_latencies_us(captured("ib_write_lat.out")) == (), "they were not asked for"


@pytest.mark.parametrize(("old", "new"), [("39688.4", "inf"), ("39688.4", "-3"), ("39688.4", "0"), ("usec", "cycles")])
def test_latencies_that_are_no_times_are_refused(old: str, new: str) -> None:
    with pytest.raises(PerftestReportError, match=r"clock counts|not in usec"):
        parse_latencies_us(captured("ib_read_lat.out").replace(old, new))


def test_a_compare_and_swap_is_told_from_a_fetch_and_add() -> None:
    (found,) = parse_report(PerftestTest.ATOMIC_BW, captured("ib_atomic_bw-cas.out")).bandwidths
    assert (found.size_bytes, found.iterations) == (8, 20)
    assert found.messages_per_s == pytest.approx(5741)
    assert "Atomic CMP_AND_SWAP BW Test" in captured("ib_atomic_bw-cas.out")
    argv = job(PerftestTest.ATOMIC_BW).arguments("dev", 1)
    assert "-A" not in argv
    both = job(PerftestTest.ATOMIC_LAT, atomic_type="CMP_AND_SWAP")
    assert " ".join(both.arguments("dev", 1)).endswith("-u 18 -A CMP_AND_SWAP")


def test_the_table_names_its_unit() -> None:
    """A server that was not asked for Gbit/s, and measures no peak."""
    text = captured("ib_send_bw.out").replace("Gb/sec", "MiB/sec")
    assert parse_report(PerftestTest.SEND_BW, text).bandwidths[0].average_bps == pytest.approx(0.002024 * MEBIBYTES)
    text = text.replace("MiB/sec", "MB/sec")
    assert parse_report(PerftestTest.SEND_BW, text).bandwidths[0].average_bps == pytest.approx(0.002024 * MEBIBYTES)
    document = captured("ib_send_bw.json")
    report = parse_report(PerftestTest.SEND_BW, "", document, gigabits=False)
    assert report.bandwidths[0].average_bps == pytest.approx(0.002024 * MEBIBYTES)
    assert parse_report(PerftestTest.SEND_BW, captured("ib_send_bw-server.out")).bandwidths[0].peak_bps == 0


def test_all_sizes_are_in_the_table_and_the_last_in_the_file() -> None:
    document = captured("ib_write_bw-all-sizes.json")
    assert len(parse_report(PerftestTest.WRITE_BW, "", document)) == 1
    report = parse_report(PerftestTest.WRITE_BW, captured("ib_write_bw-all-sizes.out"), document)
    assert [item.size_bytes for item in report.bandwidths] == [2**power for power in range(1, 24)]
    assert report.bandwidths[-1].average_bps == pytest.approx(41_168_000)


def test_a_file_that_is_no_json() -> None:
    """As perftest 4.5 writes it: no quotes, and commas behind the last entries."""
    report = parse_report(PerftestTest.WRITE_LAT, "", captured("ib_write_lat-4.5.json"))
    (found,) = report.latencies
    assert (found.size_bytes, found.iterations, found.average_us) == (128, 5000, 2.42)
    assert (found.p99_us, found.p99_9_us) == (2.47, 4.03)
    assert report.settings["Device"] == "rxe0"
    assert report.settings["TX_depth"] == "1"


def test_a_figure_that_was_not_measured_is_none() -> None:
    """The server's table has `-nan` for the deviation; a file with it is no JSON."""
    (found,) = parse_report(PerftestTest.SEND_LAT, captured("ib_send_lat-server.out")).latencies
    assert found.stdev_us is None
    assert found.average_us == 58778.86
    document = captured("ib_send_lat.json").replace("20480.63", "-nan")
    (found,) = parse_report(PerftestTest.SEND_LAT, "", document).latencies
    assert found.stdev_us is None


def test_no_clock_no_result() -> None:
    """The average is `inf`: perftest could not tell how fast the CPU counts. That is no measurement."""
    with pytest.raises(PerftestReportError, match=r"ib_write_lat: Correlation coefficient r\^2: 0\.453106 < 0\.9"):
        parse_report(
            PerftestTest.WRITE_LAT,
            captured("ib_write_lat-duration.out"),
            captured("ib_write_lat-duration.json"),
            captured("ib_write_lat-duration.err"),
        )
    text = captured("ib_write_lat-duration.out").replace("  inf  ", "67.5 ")
    (found,) = parse_report(PerftestTest.WRITE_LAT, text).latencies
    assert (found.average_us, found.min_us, found.p99_us) == (67.5, None, None)


@pytest.mark.parametrize("length", [0, 1, 100, 400, 500])
def test_what_was_cut_short_is_no_result(length: int) -> None:
    text = captured("ib_send_bw.out")
    with pytest.raises(PerftestReportError, match="it printed no result"):
        parse_report(PerftestTest.SEND_BW, text[:length], captured("ib_send_bw.json")[:length])


def test_the_wrong_test_is_no_result() -> None:
    with pytest.raises(PerftestReportError):
        parse_report(PerftestTest.SEND_LAT, captured("ib_send_bw.out"), captured("ib_send_bw.json"))


@pytest.mark.parametrize("text", ["{}", "[1, 2]", "null", "{" * 5000, '{"results": {"MsgSize": "x"}}', "\0\n: , :"])
def test_any_text_is_read_without_a_crash(text: str) -> None:
    with pytest.raises(PerftestReportError):
        parse_report(PerftestTest.WRITE_BW, text, text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-server.err", "Couldn't connect to 100.113.169.177:18515; Unable to open file descriptor for socket"),
        ("no-device.err", "IB device mnr-h9-eth1 not found; Unable to find the Infiniband/RoCE device"),
        ("peer-gone-server.out", "ethernet_read_data: Couldn't read reports; Unable to read to socket/rdma_cm"),
    ],
)
def test_failures_in_perftests_words(name: str, words: str) -> None:
    assert complaint("", captured(name)).startswith(words)


def test_a_run_that_went_well_has_no_complaint() -> None:
    for path in DATA.glob("*.out"):
        if not path.name.startswith("peer-gone"):
            assert complaint(path.read_text()) == "", path.name


def test_a_completion_with_error_is_explained() -> None:
    said = complaint(" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n")
    assert said.startswith("Completion with error at client; Failed status 12: wr_id 0 syndrom 0x81; a work request")
    assert "status 12 (the peer did not acknowledge in time" in said
    assert complaint("Failed status 99: wr_id 0").endswith("ended with status 99")


def job(test: PerftestTest, **settings: Any) -> PerftestJob:
    return PerftestJob(test=test, **settings)


def test_arguments() -> None:
    argv = job(PerftestTest.WRITE_BW, queue_pairs=4, traffic_class=106, size_bytes=4096).arguments("dev", 1)
    assert argv[0] == "ib_write_bw"
    for words in (["-d", "dev"], ["-x", "1"], ["-q", "4"], ["-s", "4096"], ["-n", "1000"], ["-u", "18"]):
        assert words in [argv[index : index + 2] for index in range(len(argv))]
    assert "--report_gbits" in argv and "--tclass=106" in argv
    latency = job(PerftestTest.SEND_LAT).arguments("dev", 1)
    assert not {"-q", "--report_gbits", "--tclass=0"} & set(latency)
    assert "-s" not in job(PerftestTest.ATOMIC_BW).arguments("dev", 1), "atomics are of 8 bytes"


@pytest.mark.parametrize(
    ("test", "settings"),
    [
        (PerftestTest.SEND_LAT, {"queue_pairs": 2}),
        (PerftestTest.WRITE_BW, {"traffic_class": 256}),
        (PerftestTest.WRITE_BW, {"iterations": 0}),
        (PerftestTest.WRITE_BW, {"size_bytes": 0}),
    ],
)
def test_what_perftest_would_refuse(test: PerftestTest, settings: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        job(test, **settings)


def test_a_report_counts_its_sizes() -> None:
    assert len(PerftestReport(settings={})) == 0
