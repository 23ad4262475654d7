"""Jobs of fio: what is asked of it, and what its report says. The reports are those of fio 3.33."""

import json
from typing import Any

import pytest

from testbed.endpoints.storage.fio import (
    BLOCK_BYTES,
    FioError,
    FioJob,
    FioResult,
    JobReport,
    blocks_of,
    contents,
    fio_arguments,
    has_engine,
    merged,
    parse_report,
    render_jobs,
)

SAID = "fio: connected to NBD server\ns5 : Saving output of prerun in s5.prerun.txt\n"
NOTHING = {"total_ios": 0, "io_bytes": 0, "runtime": 0, "clat_ns": {"min": 0, "max": 0, "N": 0}}


def side(bins: dict[str, int], *, runtime: int = 11) -> dict[str, Any]:
    ios = sum(bins.values())
    return {
        "total_ios": ios,
        "io_bytes": ios * 262144,
        "runtime": runtime,
        "clat_ns": {"min": 1, "max": 2, "N": ios, "percentile": {"50.000000": 2998272}, "bins": bins},
    }


def report(*jobs: dict[str, Any], before: str = SAID) -> str:
    return before + json.dumps({"fio version": "fio-3.33", "jobs": jobs}, indent=2) + "\n"


def job(number: int, **changes: Any) -> dict[str, Any]:
    return {"jobname": f"s{number}", "error": 0, "read": NOTHING, "write": side({"1000": 3, "5000": 1})} | changes


def test_a_report_has_each_job_by_its_number() -> None:
    found = parse_report(report(job(5), job(12, write=NOTHING, read=side({"7000": 2}, runtime=4))))
    assert found == {
        5: JobReport(write=FioResult(ios=4, bytes=4 * 262144, runtime_ms=11, latencies_ns={1000: 3, 5000: 1})),
        12: JobReport(read=FioResult(ios=2, bytes=2 * 262144, runtime_ms=4, latencies_ns={7000: 2})),
    }
    both = parse_report(report(job(7, read=side({"7000": 2}))))[7]
    assert [result.ios for result in both.results] == [2, 4]


def test_percentiles_are_of_all_jobs_together() -> None:
    """The median of 3 x 1000, 1 x 5000 and 2 x 7000 is the third; of one job's alone it would be 7000."""
    reports = parse_report(report(job(5), job(12, write=NOTHING, read=side({"7000": 2})))).values()
    together = merged([result for one in reports for result in one.results], 22)
    assert (together.percentile_ns(0.5), together.percentile_ns(0.99)) == (1000, 7000)
    counters = together.counters()
    assert counters["fio_ios"] == 6 and counters["fio_runtime_ms"] == 22
    assert counters["fio_iops"] == round(6 / 0.022)
    assert counters["fio_bytes_per_s"] == round(6 * 262144 / 0.022)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "reported nothing"),
        ("nfs: Failed to mount nfs://10.0.0.1/e with code -5\n", "Failed to mount"),
        (report(job(5, error=84), before="fio: pid=7, err=84/file:io_u.c:1, func=verify, error=Invalid\n"), "verify"),
        (report(job(5, write=NOTHING)), "job s5 has moved nothing"),
        ("{\n}\n", "no such"),
        ('{\n "jobs": [{"jobname": "s1"}]\n}\n', "no such"),
    ],
)
def test_what_is_no_result_is_an_error(text: str, words: str) -> None:
    with pytest.raises(FioError, match=words):
        parse_report(text)


@pytest.mark.parametrize("size_bytes", [1, 511, 512, 250_000, 1_000_000, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("io_bytes", [512, 4096, 262_144, 1 << 20])
def test_blocks_are_alike_and_have_room_for_a_transfer(size_bytes: int, io_bytes: int) -> None:
    blocks, block_bytes = blocks_of(size_bytes, io_bytes)
    assert block_bytes % BLOCK_BYTES == 0 and block_bytes <= io_bytes
    assert size_bytes <= blocks * block_bytes < size_bytes + blocks * BLOCK_BYTES


def test_a_job_file_says_where_what_and_when() -> None:
    jobs = [
        FioJob(number=5, writes=True, offset=8192, block_bytes=1024, blocks=3, depth=4, place={"uri": "nbd://a/"}),
        FioJob(number=6, writes=False, offset=0, block_bytes=512, blocks=1, depth=1, place={}, at_random=True),
    ]
    lines = render_jobs("nbd", 0x1122, jobs).splitlines()
    first, second = lines.index("[s5]"), lines.index("[s6]")
    assert {"ioengine=nbd", "verify_pattern=0x0000000000001122%o", "exitall_on_error=1"} <= set(lines[:first])
    assert lines[first + 1 : second] == [
        "uri=nbd://a/",
        "rw=write",
        "bs=1024",
        "iodepth=4",
        "offset=8192",
        "size=3072",
        "exec_prerun=echo ready 5 >marks && read begin <begin.5",
        "exec_postrun=echo done 5 >marks && true",
    ]
    assert "rw=randread" in lines[second:]
    assert not [line for line in lines if ";" in line or "#" in line], "the rest of a line would be a comment"
    assert fio_arguments("r.json")[-1] == "-"


def test_a_job_that_reads_and_writes_and_one_that_repeats() -> None:
    """fio 3.33 would end a job of reads after its first pass if it checked them, whatever its time."""
    both = FioJob(
        number=1, writes=True, offset=0, block_bytes=512, blocks=9, depth=1, place={}, at_random=True, read_percent=70
    )
    again = FioJob(
        number=2, writes=False, offset=0, block_bytes=512, blocks=9, depth=1, place={}, runtime_us=1500, repeats=True
    )
    lines = render_jobs("nbd", 1, [both, again]).splitlines()
    first, second = lines.index("[s1]"), lines.index("[s2]")
    assert {"rw=randrw", "rwmixread=70"} <= set(lines[first:second]) and "verify=0" not in lines[:second]
    assert {"rw=read", "runtime=1500us", "time_based=1", "verify=0"} <= set(lines[second:])


def test_contents_follow_from_seed_and_block() -> None:
    """As fio 3.33 wrote with verify_pattern=0x1122334455667788%o and bs=1024 into the block at 41943040."""
    block = contents(0x1122334455667788, 41_943_040, 1024)
    assert block[:32].hex() == "1122334455667788" + "0000800200000000" + "1122334455667788" + "0000800200000000"
    assert len(block) == 1024 and block != contents(0x1122334455667788, 41_944_064, 1024)


def test_engines_are_whole_words() -> None:
    listed = "Available IO engines:\n\tpsync\n\tnbd\n"
    assert has_engine(listed, "nbd") and not has_engine(listed, "nfs") and not has_engine(listed, "sync")
