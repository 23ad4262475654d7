"""Traces of requests: both public formats, and every fault at its line and column."""

import random
from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.run.schema.file import read_scenario
from testbed.workload.kinds.kind import FabricView
from testbed.workload.registry import build_workload
from testbed.workload.requests.traces import TracedRequest, decode_request_trace, load_request_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319569,3180,8
2023-11-16 18:17:04.0781240,110,27
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118.5,GPT-4,417,276,693,API log
"""


def test_azure() -> None:
    trace = decode_request_trace(AZURE, file="a.csv")
    assert trace.failed == 0
    assert trace.requests == (
        TracedRequest(at_ns=0, prompt_tokens=4808, output_tokens=10),
        TracedRequest(at_ns=51_996_900, prompt_tokens=3180, output_tokens=8),
        TracedRequest(at_ns=98_164_000, prompt_tokens=110, output_tokens=27),
    )


def test_azure_of_2024_has_a_zone_and_may_have_other_ends_of_lines() -> None:
    text = "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,2162,5\r\n\r\n"
    text += "2024-05-10 00:00:00.017335+00:00,2399,6\r\n"
    assert [one.at_ns for one in decode_request_trace(text, file="a.csv").requests] == [0, 7_405_000]


def test_burstgpt() -> None:
    trace = decode_request_trace(BURST, file="b.csv")
    assert trace.failed == 1, "a response of no tokens is a failure of the service"
    assert trace.requests == (
        TracedRequest(at_ns=0, prompt_tokens=472, output_tokens=18),
        TracedRequest(at_ns=113_500_000_000, prompt_tokens=417, output_tokens=276),
    )


def test_rows_out_of_order_are_put_in_order() -> None:
    header, first, *rest = BURST.splitlines()
    text = "\n".join([header, *rest, first])
    assert decode_request_trace(text, file="b.csv").requests[0].prompt_tokens == 472


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", ["t.csv: empty"]),
        ("when,what\n1,2\n", ["t.csv:1:1: unknown-format"]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ["t.csv:1:1: empty"]),
        (AZURE + "yesterday,5,5\n", ["t.csv:5:1: not-a-time"]),
        (AZURE + "2023-13-45 18:17:04.0,5,5\n", ["t.csv:5:1: not-a-time"]),
        (AZURE + "2023-11-16 18:17:05, many,5\n", ["t.csv:5:22: not-a-number"]),
        (AZURE + "2023-11-16 18:17:05,0,5\n", ["t.csv:5:21: out-of-range"]),
        (AZURE + "2023-11-16 18:17:05,-1,5\n", ["t.csv:5:21: not-a-number"]),
        (AZURE + "2023-11-16 18:17:05,5,999999999\n", ["t.csv:5:23: out-of-range"]),
        (AZURE + "2023-11-16 18:17:05,5\n", ["t.csv:5:1: bad-row"]),
        (AZURE + "a,b,c\n", ["t.csv:5:1: not-a-time", "t.csv:5:3: not-a-number", "t.csv:5:5: not-a-number"]),
        (BURST + "nan,GPT-4,1,1,2,API log\n", ["t.csv:5:1: not-a-number"]),
        (BURST + "1e99,GPT-4,1,1,2,API log\n", ["t.csv:5:1: out-of-range"]),
        (BURST + "\n6,GPT-4,x,1,2,API log\n", ["t.csv:6:9: not-a-number"]),
    ],
)
def test_what_is_wrong_has_its_place(text: str, places: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        decode_request_trace(text, file="t.csv")
    found = [str(problem) for problem in refused.value.problems]
    assert [one.startswith(place) for one, place in zip(found, places, strict=True)] == [True] * len(places), found


def test_what_is_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        load_request_trace(str(tmp_path / "none.csv"))
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"TIMESTAMP\xff")
    with pytest.raises(SpecError, match=r"b\.csv:1:10: not-text"):
        load_request_trace(str(binary))


def test_a_workload_replays_it(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text(AZURE)
    fabric = FabricView(ranks=2, rate_bps=10**9, bdp_bytes=10_000, rng=random.Random(1))
    written = {"arrivals": "trace", "trace": str(file), "trace_speed": 2}
    workload = build_workload("inference-requests", written, fabric)
    assert [one.start_ns for one in workload.requests] == [0, 25_998_450, 49_082_000]
    assert [one.prompt_tokens for one in workload.requests] == [4808, 3180, 110]
    lengths_alone = build_workload("inference-requests", {"lengths": "trace", "trace": str(file)}, fabric)
    assert [one.output_tokens for one in lengths_alone.requests[:4]] == [10, 8, 27, 10], "over and over"


def test_a_scenario_is_refused_for_its_trace_before_anything_is_touched(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(AZURE + "2023-11-16 18:17:05,many,5\n")
    scenario = tmp_path / "s.yml"
    scenario.write_text(
        "name: s\ntopology: {inline: {name: l, fabric: {design: single-switch, hosts: 4, gpus: 1}}}\n"
        "workload: {kind: inference-requests, lengths: trace, trace: bad.csv}\n"
    )
    with pytest.raises(SpecError, match=r"bad\.csv:5:21: not-a-number"):
        read_scenario(scenario)
