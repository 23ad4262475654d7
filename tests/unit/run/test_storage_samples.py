"""From when steps began to the metrics of storage: utilisation of accelerators, and times to the first token."""

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.base.metric import RunSamples
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.record.catalogue import measure_metrics
from testbed.run.measuring.storage import computed_s, not_safe_text, storage_samples
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, compile_programs
from testbed.workload.builder import StepBuilder
from testbed.workload.oracles.roofline import workload_roofline_s
from testbed.workload.steps import FirstToken, Workload

MS = 1_000_000
NICS: list[PortPlan] = [host.nics[0] for host in small_lab(segments=1, hosts=4, rails=1)[1].hosts]


def place(workload: Workload, k: float = 10.0) -> PlacedWorkload:
    channels = plan_channels(workload, NICS, seed=1)
    return PlacedWorkload(workload=workload, ranks=NICS, channels=channels, k=k, seed=1)


def test_utilisation_is_that_of_each_host_from_its_first_batch_on() -> None:
    """Batches of 10 ms in lab time; a computing of another kind counts only for the end."""
    builder = StepBuilder(4)
    for host in (0, 1):
        for _ in range(3):
            builder.compute(host, MS, is_batch=True)
    builder.compute(2, 5 * MS)
    workload = builder.build("batches")
    began_ms = [100, 110, 120, 0, 30, 50, 100]
    started = {number: at * MS for number, at in enumerate(began_ms)}
    found = measure_metrics(RunSamples(*storage_samples(place(workload), started)))
    assert found["accelerator_utilisation"] == pytest.approx((20 / 20 + 20 / 50) / 2)
    assert found["min_accelerator_utilisation"] == pytest.approx(20 / 50)
    assert computed_s(place(workload), started) == pytest.approx((0.0, 0.150))
    assert computed_s(place(workload), {}) is None


def test_a_first_token_is_late_by_what_it_has_waited_for() -> None:
    """Prompts of 1 ms of computing, due after 0 and 2 ms in real time; the second one's computing begins 3 ms late."""
    builder = StepBuilder(4)
    numbers = [builder.compute(0, MS, start_ns=due * MS) for due in (0, 2)]
    tokens = [
        FirstToken(step=number, due_ns=due * MS, service_ns=MS, limit_ns=3 * MS)
        for number, due in zip(numbers, (0, 2), strict=True)
    ]
    workload = builder.build("prompts", first_tokens=tokens)
    found = measure_metrics(RunSamples(*storage_samples(place(workload), {0: 0, 1: 50 * MS})))
    assert found["p99_ttft"] == pytest.approx(0.040) and found["median_ttft"] == pytest.approx(0.010)
    assert found["p99_ttft_network"] == pytest.approx(0.030)
    assert found["request_goodput_share"] == 0.5 and found["failed_requests"] == 0
    assert found["p99_tpot"] is None


def test_computing_waits_for_its_time() -> None:
    builder = StepBuilder(4)
    builder.compute(0, MS, start_ns=2 * MS)
    workload = builder.build("prompt")
    [program] = compile_programs(place(workload), lambda host: TcpSettings()).values()
    assert [(step.start_ns, step.duration_ns) for step in program.steps] == [(20 * MS, 10 * MS)]
    bound_s = workload_roofline_s(workload, rate_bps=lambda rank: 1e9, scale_up_bps=1e9, scale=10.0)
    assert bound_s == pytest.approx(0.010), "from when it begins"


def test_a_read_over_a_transport_without_reads_is_refused() -> None:
    builder = StepBuilder(4)
    builder.transfer(1, 0, 100, pulled=True, label="batch")
    with pytest.raises(ScenarioError, match=r"step 0 \(batch\) is read by rank 0, and the transport has no reads"):
        compile_programs(place(builder.build("reads")), lambda host: TcpSettings())


def test_bytes_that_are_not_safe_are_told_with_their_places() -> None:
    builder = StepBuilder(4)
    for source in (0, 1):
        builder.transfer(source, 3, 1000)
    placed = place(builder.build("writes"))
    a, b, target = (NICS[rank].node for rank in (0, 1, 3))
    safe: dict[str, list[dict[str, list[list[int]]]]] = {"channels": [{"not_safe": []}]}
    assert not_safe_text(placed, {a: safe}) == ""
    broken = {"channels": [{"not_safe": [[1, 512, 488]]}]}
    several = {"channels": [{"not_safe": [[0, 0, 10], [0, 20, 10], [0, 40, 10], [0, 60, 10]]}]}
    found = not_safe_text(placed, {b: broken, a: several, target: safe})
    assert found.startswith("not safe are 528 bytes that were being written: ")
    assert f"0 to 9 of the 1000 of step 0, {a} to {target}; " in found and found.endswith("; and 1 more")
    assert f"512 to 999 of the 1000 of step 1, {b} to {target}" in not_safe_text(placed, {b: broken})
