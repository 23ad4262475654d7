"""What became of requests: from the reports of workers to the table, the samples of metrics, and curves."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.base.metric import RunSamples
from testbed.base.units import Duration
from testbed.endpoints.worker.program_json import decode_program, encode_program
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.record.catalogue import measure_metrics
from testbed.record.samples import InferenceRequests
from testbed.run.measuring.requests import measure_requests
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, compile_programs
from testbed.run.placed.traffic import make_traffic
from testbed.run.schema.model import Ranks, Scenario, TopologyRef
from testbed.run.schema.model import Workload as ScenarioWorkload
from testbed.workload.steps import Request, Workload

_, PLAN = small_lab(segments=1, hosts=4, rails=2)
NICS = [host.nics[0] for host in PLAN.hosts]
MS = 1_000_000


def request(number: int, *, start_ms: int, client: int = 0, server: int = 1, tokens: int = 3) -> Request:
    return Request(
        number=number,
        client=client,
        server=server,
        start_ns=start_ms * MS,
        prompt_tokens=100,
        output_tokens=tokens,
        request_bytes=600,
        chunk_bytes=150,
        prefill_ns=10 * MS,
        tpot_ns=4 * MS,
        ttft_limit_ns=15 * MS,
        tpot_limit_ns=6 * MS,
    )


WORKLOAD = Workload(
    name="x",
    ranks=4,
    steps=(),
    requests=(
        request(0, start_ms=0),
        request(1, start_ms=10, client=2, server=3),
        request(2, start_ms=20, tokens=1),
        request(3, start_ms=30),
        request(4, start_ms=40),
    ),
)


def place(workload: Workload = WORKLOAD, k: float = 1.0, nics: Any = NICS) -> PlacedWorkload:
    channels = plan_channels(workload, nics, seed=1)
    return PlacedWorkload(workload=workload, ranks=nics, channels=channels, k=k, seed=1)


def report(*courses: tuple[int, int, int, list[int], str]) -> dict[str, Any]:
    names = ("number", "lateness_ns", "first_ns", "gaps_ns", "failure")
    return {"requests": dict(zip(names, (list(column) for column in zip(*courses, strict=True)), strict=True))}


REPORTS = {
    "a": report(
        (0, 100, 12 * MS, [5 * MS, 4 * MS], ""),
        (2, 300, 40 * MS, [], ""),
        (3, 900, -1, [], "Connection refused"),
        (4, 200, 60 * MS, [4 * MS], ""),
    ),
    "b": report((1, 400, 23 * MS, [9 * MS, 4 * MS], "")),
    "c": {"requests": None},
    "d": {"requests": None, "counters": {"http_retransmits": 3}},
}


def test_the_table_has_all_that_began() -> None:
    found = measure_requests(place(), REPORTS)
    table = found.table
    assert table.number == [0, 1, 2, 3, 4]
    assert table.client == [0, 2, 0, 0, 0]
    assert table.first_s == [0.012, 0.023, 0.04, None, 0.06]
    assert table.end_s == [pytest.approx(0.021), pytest.approx(0.036), pytest.approx(0.04), None, None]
    assert table.failure == ["", "", "", "Connection refused", ""]
    assert table.lateness_s == [1e-7, 4e-7, 3e-7, 9e-7, 2e-7]
    assert found.counters["requests_begun"] == 5
    assert found.retransmits == 3
    assert found.counters["request_lateness_p99_us"] == pytest.approx(0.9)


def test_samples_are_of_those_that_were_answered() -> None:
    found = measure_requests(place(), REPORTS)
    metrics = measure_metrics(RunSamples(*found.samples()))
    assert metrics["mean_ttft"] == pytest.approx((12 + 13 + 20) / 3e3)
    assert metrics["median_ttft_network"] == pytest.approx(0.003)
    assert metrics["p99_ttft"] == pytest.approx(0.02)
    assert metrics["mean_tpot"] == pytest.approx((4.5 + 6.5) / 2e3), "an answer of one token has none"
    assert metrics["p99_itl_network"] == pytest.approx(0.005)
    assert metrics["p99_e2el"] == pytest.approx(0.026)
    assert metrics["p99_e2el_network"] == pytest.approx(0.01), "the one of a single token"
    assert metrics["failed_requests"] == 1
    assert metrics["request_throughput"] == pytest.approx(3 / 0.04), "the one that was not over is no failure"
    assert metrics["output_throughput"] == pytest.approx(7 / 0.04)
    assert metrics["request_goodput"] == pytest.approx(1 / 0.04), "one had a TPOT, one a TTFT beyond its limit"
    assert metrics["request_goodput_share"] == pytest.approx(1 / 4)


def test_service_times_and_limits_are_scaled() -> None:
    reports = {"a": report((0, 0, 120 * MS, [50 * MS, 40 * MS], ""))}
    found = measure_requests(place(k=10.0), reports)
    assert found.table.service_first_s == [0.1] and found.table.service_token_s == [0.04]
    assert found.counts.within_limits == 1
    assert list(found.times.service_e2el_s) == [pytest.approx(0.18)]


def test_nothing_is_measured_where_there_are_no_requests() -> None:
    assert measure_requests(place(Workload(name="none", ranks=2, steps=())), REPORTS) is None
    found = measure_requests(place(), {"c": {"requests": None}})
    assert found is not None and found.table == InferenceRequests()
    metrics = measure_metrics(RunSamples(*found.samples()))
    assert metrics["p99_ttft"] is None and metrics["request_throughput"] is None
    assert found.series() == [] and found.distributions() == []


def test_curves_over_the_time_at_which_requests_were_due() -> None:
    requests = tuple(request(n, start_ms=10 * n, tokens=1) for n in range(80))
    workload = Workload(name="x", ranks=4, steps=(), requests=requests)
    took = [20 if 300 <= 10 * n < 500 else 11 for n in range(80)]
    reports = {"a": report(*((n, 0, (10 * n + took[n]) * MS, [], "") for n in range(80)))}
    found = measure_requests(place(workload), reports)
    median, longest = found.series()
    assert median.name == "ttft:median" and len(median.at_s) == 20 == len(longest.values)
    assert max(value or 0 for value in median.values) == pytest.approx(0.02)
    slow = [at for at, value in zip(longest.at_s, longest.values, strict=True) if value and value > 0.015]
    assert min(slow) > 0.25 and max(slow) < 0.55
    [ttft] = found.distributions()
    assert sum(ttft.counts) == 80 and ttft.name == "ttft"


def test_each_host_has_the_requests_that_it_takes_part_in() -> None:
    programs = compile_programs(place(k=10.0), lambda host: TcpSettings())
    assert list(programs) == [nic.node for nic in NICS]
    assert [[one.number for one in program.requests] for program in programs.values()] == [
        [0, 2, 3, 4],
        [0, 2, 3, 4],
        [1],
        [1],
    ]
    assert [program.own for program in programs.values()] == [{0}, {1}, {2}, {3}]
    first = next(iter(programs.values())).requests[1]
    assert (first.start_ns, first.prefill_ns, first.tpot_ns) == (200 * MS, 100 * MS, 40 * MS)
    assert all(decode_program(encode_program(program)) == program for program in programs.values())


def test_client_and_server_on_one_host_are_refused() -> None:
    both = [nic for host in PLAN.hosts for nic in host.nics]
    with pytest.raises(ScenarioError, match="client and server on one host"):
        compile_programs(place(nics=both), lambda host: TcpSettings())


def test_requests_that_cannot_be_over_in_time_are_refused() -> None:
    scenario = Scenario(
        name="x",
        topology=TopologyRef(file="x"),
        workload=ScenarioWorkload(
            kind="inference-requests",
            parameters={"span": Duration.parse("1s"), "prefill": Duration.parse("3s")},
            ranks=Ranks(rails=(1,)),
        ),
    )
    model, plan = small_lab(segments=1, hosts=4, rails=2)
    lab = SimpleNamespace(model=model, plan=replace(plan, k=1.0), name=model.name)
    assert make_traffic(scenario, lab, seed=1).workload.requests
    slow = SimpleNamespace(model=model, plan=replace(plan, k=20.0), name=model.name)
    with pytest.raises(ScenarioError, match=r"at k = 20 the last answer is computed 8\d s after .* limit is 60 s"):
        make_traffic(scenario, slow, seed=1)
