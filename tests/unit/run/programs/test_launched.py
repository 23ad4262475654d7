"""A program of the user's own in a run: what is launched, what its lines tell, what is recorded and judged of it."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.base.units import ByteCount, Duration
from testbed.lab.core.model import Lab
from testbed.record.samples import ProgramRank, ProgramRecord, ProgramStepTable
from testbed.run.launch import HostKills, LaunchEnd, LaunchOptions, RankLine
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.measures import RunData, compute_metrics
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.program import represent
from testbed.run.placed.traffic import make_traffic
from testbed.run.programs import launched as launched_module
from testbed.run.programs.carries_over import program_approximations
from testbed.run.programs.launched import LaunchedProgram, ProgramOutOfTime, ProgramWatch
from testbed.run.programs.needs import check_needs
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Ranks, Scenario, Transport, Workload
from testbed.run.schema.transports import TransportKind
from testbed.run.simulated.support import check_supported
from testbed.run.sweep.points import Sweep, plan_points, topology_key
from testbed.run.trust.programs import check_fabric_used

COMMAND = ("{python}", "train.py", "--width", "64")
STEP = r"step (?P<step>\d+) (?P<seconds>[\d.]+) s"


def scenario(**parameters: Any) -> Scenario:
    written = {"command": COMMAND, "step": STEP, "bytes": ByteCount(1_000_000)} | parameters
    return Scenario(
        name="program",
        topology=SimpleNamespace(file="x.yml", set={}, inline=None),  # type: ignore[arg-type]
        workload=Workload(
            kind="program",
            parameters={key: value for key, value in written.items() if value is not None},
            ranks=Ranks(rails=(1,)),
            time_limit=Duration.parse("30s"),
        ),
        source="/somewhere/program.yml",
    )


def lab(k: float = 20_000.0) -> PlannedLab:
    model, plan = small_lab(k=k)
    return PlannedLab(model=model, plan=plan)


@dataclass
class Launch:
    """Stands for `launch_ranks`: prints `lines` of ranks, and ends as it is told."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    ended_by: LaunchEnd = LaunchEnd.SELF
    exit_code: int = 0
    failure: str = ""
    rail_bytes: int = 50_000_000
    error: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    def __call__(
        self,
        lab: Any,
        command: Any,
        options: LaunchOptions,
        *,
        on_line: Callable[[RankLine], None],
        interrupt: Interrupt,
        kills: HostKills,
    ) -> Any:
        self.asked.append((list(command), options))
        if self.error is not None:
            raise self.error
        for rank, text in self.lines:
            on_line(RankLine(rank=rank, text=text, is_error=False, at_s=time.monotonic()))
        ends = [
            SimpleNamespace(rank=rank, host=nic.node, status=self.statuses.get(rank, 0), started_s=1.0, reason="",
                            ended_s=8.0 if self.statuses.get(rank, 0) > 0 else 9.0)
            for rank, nic in enumerate(options.nics)
        ]  # fmt: skip
        return SimpleNamespace(
            places=[SimpleNamespace(nic=nic) for nic in options.nics],
            ranks=ends,
            exit_code=self.exit_code,
            failure=self.failure,
            ended_by=self.ended_by,
            started_s=1.0,
            ended_s=9.0,
            rail_bytes=self.rail_bytes,
            sent_again=3,
            congestion_control="cubic",
            cpu_s=7.0,
        )


@dataclass
class Seen:
    steps: list[int] = field(default_factory=list)
    warm: int = 0
    entered: int = 0
    left: int = 0


def run(
    monkeypatch: pytest.MonkeyPatch,
    launch: Launch,
    of: Scenario | None = None,
    *,
    requested: bool = False,
    probes: Any = None,
) -> tuple[Measured, Seen]:
    monkeypatch.setattr(launched_module, "launch_ranks", launch)
    of = of or scenario()
    planned, seen, measured = lab(), Seen(), Measured()

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        seen.entered += 1
        try:
            yield
        finally:
            seen.left += 1
            measured.probes = probes

    def warm() -> None:
        seen.warm = len(seen.steps)

    traffic = make_traffic(of, planned, seed=1)
    program = LaunchedProgram(
        lab=planned,  # type: ignore[arg-type]
        scenario=of,
        traffic=traffic,
        stands=represent(of.workload, bdp_bytes=600_000, k=planned.plan.k),
        ideal_s=0.7,
    )
    watch = ProgramWatch(
        interrupt=SimpleNamespace(requested=requested),  # type: ignore[arg-type]
        around=around,
        on_warm=warm,
        on_step=lambda step, at_ns: seen.steps.append(step),
        on_elapsed=lambda elapsed_s, whole_s: None,
    )
    program.run(watch, measured)
    return measured, seen


LINES = [(0, "step 0 5.000 s"), (1, "hello"), (0, "step 1 0.800 s"), (1, "step 1 0.900 s"), (0, "step 2 0.700 s")]


def test_a_program_is_launched_on_the_nics_that_the_scenario_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(LINES)
    of = scenario(
        env=("WIDTH=64", "A=b=c"), pmi=True, represents=ByteCount(1_000_000_000), compute=Duration.parse("30ms")
    )
    run(monkeypatch, launch, replace(of, transport=Transport(cc="cubic")))
    ((command, options),) = launch.asked
    assert command == [sys.executable, "train.py", "--width", "64"]
    assert [(nic.node, nic.name) for nic in options.nics] == [
        ("p1-s1-h1", "rail1"), ("p1-s1-h2", "rail1"), ("p1-s2-h1", "rail1"), ("p1-s2-h2", "rail1")
    ]  # fmt: skip
    assert options.env == {"LAB_PAD_S": "0.6", "WIDTH": "64", "A": "b=c"}, "30 ms x 20,000 / 1,000"
    assert (options.pmi, options.cc, options.timeout_s, options.transport) == (True, "cubic", 30.0, "tcp")
    assert options.directory == Path("/somewhere")


def test_ranks_that_poll_give_way_and_are_not_held_against_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(LINES)
    measured, _ = run(monkeypatch, launch, scenario(polls=True))
    assert launch.asked[0][0][:4] == ["chrt", "--idle", "0", sys.executable]
    assert measured.polling_s == 7.0


@pytest.mark.parametrize(("libfabric", "expected"), [(None, "uet"), (True, "libfabric")])
def test_what_carries_it_is_the_transport(
    monkeypatch: pytest.MonkeyPatch, libfabric: bool | None, expected: str
) -> None:
    launch = Launch(LINES)
    run(monkeypatch, launch, replace(scenario(libfabric=libfabric), transport=Transport(kind=TransportKind.UET)))
    assert launch.asked[0][1].transport == expected


def test_its_lines_tell_of_steps_which_faults_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, seen = run(monkeypatch, Launch(LINES))
    assert seen.steps == [0, 1, 2] and seen.warm == 1, "the machine is judged from the first step on"
    assert (seen.entered, seen.left) == (1, 1)
    program = measured.program
    assert program is not None and measured.complete and measured.anything
    assert (program.steps.number, program.steps.seconds) == ([0, 1, 2], [5.0, 0.9, 0.7])
    assert program.steps.warm_up == [True, False, False]
    assert program.stated_bytes == 4 * 2 * 3 * 250_000, "what a ring of four sends of a million bytes, but for scale-up"
    figures = compute_metrics(RunData(measured=measured, nic_bps=20e6))
    assert figures["program_step_p50"] == 0.7 and figures["program_step_p99"] == 0.9
    assert figures["program_ratio"] == pytest.approx(0.8 / 0.7)
    assert (figures["program_bytes"], figures["program_exit"], figures["retransmits"]) == (50e6, 0, 3)
    assert "s_fabric" not in figures and "jct" not in figures, "what is stated was not measured"


def test_the_bytes_of_our_own_probes_are_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = run(monkeypatch, Launch(LINES, rail_bytes=1_000), probes=SimpleNamespace(sent_bytes=400))
    assert measured.program is not None and measured.program.sent_bytes == 600


def test_a_program_that_fails_is_measured_and_its_last_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*LINES, *((2, f"line {number}") for number in range(100))]
    launch = Launch(lines, {2: 3, 0: -15}, exit_code=3, failure="rank 2 on p1-s2-h1 ended with exit code 3")
    measured, _ = run(monkeypatch, launch)
    program = measured.program
    assert program is not None and measured.failure is None, "that is what the program did, and no error of the run"
    assert program.exit_code == 3 and program.failure.startswith("rank 2")
    assert program.ranks[2].last_lines == [f"line {number}" for number in range(60, 100)]
    assert len(program.ranks[0].last_lines) == 3


def test_a_program_that_does_not_end_in_its_time_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = run(monkeypatch, Launch(LINES, exit_code=124, ended_by=LaunchEnd.TIMEOUT))
    assert isinstance(measured.failure, ProgramOutOfTime) and measured.program is not None
    assert "time limit of 30 s: it had told of 3 steps; its last line was: step 2" in str(measured.failure)


def test_an_interrupt_ends_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = run(monkeypatch, Launch(LINES, exit_code=130, ended_by=LaunchEnd.INTERRUPTED), requested=True)
    assert measured.interrupted and measured.failure is None


def test_what_carried_it_and_ended_makes_the_run_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(LINES, exit_code=137, ended_by=LaunchEnd.SERVED, failure="carrier on CPU 0 ended")
    measured, _ = run(monkeypatch, launch)
    assert measured.failure is not None and measured.failure.message == "carrier on CPU 0 ended"


def test_what_cannot_be_started_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CapabilityError, match="nothing there"):
        run(monkeypatch, Launch(error=CapabilityError("nothing there", missing="it")))


def program(sent_bytes: int, *, steps: int = 10, stated: int | None = 1_000_000, exit_code: int = 0) -> ProgramRecord:
    ranks = [
        ProgramRank(rank=rank, host=f"h{rank}", interface="rail1", status=0, reason="", seconds=10.0)
        for rank in range(4)
    ]
    numbers = list(range(steps))
    return ProgramRecord(
        command=["x"],
        exit_code=exit_code,
        failure="",
        ranks=ranks,
        steps=ProgramStepTable(number=numbers, at_s=[0.0] * steps, seconds=[None] * steps, warm_up=[False] * steps),
        sent_bytes=sent_bytes,
        stated_bytes=stated,
    )


@pytest.mark.parametrize(
    ("measured", "ok", "words"),
    [
        (program(10_400_000), True, "sent 10.400 MB, and 10 steps are stated to send 10.000 MB"),
        (program(9_600_000), True, "sent 9.600 MB"),
        (program(5_000_000), False, "does not use the fabric, or not as it is stated to"),
        (program(0), False, "sent 0.000 MB"),
        (program(90_000, stated=None), False, "idle ones send up to 0.096 MB"),
        (program(0, stated=None), False, "does not use the fabric"),
        (program(200_000, stated=None), True, "sent 0.200 MB"),
        (program(90_000, steps=0), False, "idle ones"),
    ],
)
def test_a_program_that_does_not_use_the_fabric_is_invalid(measured: ProgramRecord, ok: bool, words: str) -> None:
    (check,) = check_fabric_used(measured)
    assert (check.name, check.ok) == ("fabric-used", ok)
    assert words in check.message


def test_a_program_that_failed_is_judged_by_its_exit_code_alone() -> None:
    assert not list(check_fabric_used(program(0, exit_code=1)))


def test_what_a_step_stands_for() -> None:
    workload = scenario(
        bytes=ByteCount(2_370_000), represents=ByteCount(14_000_000_000), compute=Duration.parse("300ms")
    ).workload
    stands = represent(workload, bdp_bytes=600_000, k=20_000)
    assert stands.factor == pytest.approx(5907.2, rel=1e-4) and stands.padding_s == pytest.approx(1.0157, rel=1e-4)
    plain = represent(scenario(bytes=None).workload, bdp_bytes=600_000, k=20_000)
    assert (plain.factor, plain.padding_s, plain.bytes_here) == (1.0, 0.0, None)
    assert represent(scenario(bytes="2bdp").workload, bdp_bytes=600_000, k=1.0).bytes_here == 1_200_000


def test_ranks_on_one_host_and_computing_without_end_are_refused() -> None:
    alone = replace(scenario(), workload=replace(scenario().workload, ranks=Ranks(hosts=("p1-s1-h1",))))
    with pytest.raises(ScenarioError, match="all ranks of the program are on p1-s1-h1"):
        make_traffic(alone, lab(), seed=1)
    with pytest.raises(ScenarioError, match="the computing of one step is 6000 s, and the time limit is 30 s"):
        make_traffic(scenario(compute=Duration.parse("300ms")), lab(), seed=1)


def test_the_report_says_what_carries_over_and_what_does_not() -> None:
    plain = " ".join(program_approximations(lab(), scenario()))
    assert "collisions, and what a fault costs against a step carry over" in plain
    assert "Computing is not scaled" in plain and "200 ms is 10 us of the fabric's" in plain
    assert "0.42 BDP" in plain or "BDP (250,000 bytes)" in plain
    assert "scale-up network" not in plain, "one rank a host"
    of = scenario(represents=ByteCount(1_000_000_000), compute=Duration.parse("30ms"))
    both = replace(of, workload=replace(of.workload, ranks=Ranks()))
    told = " ".join(program_approximations(lab(), both))
    assert "LAB_PAD_S" in told and "stands for 1,000 of the real step" in told and "scale-up network" in told


def sweep(of: Scenario, model: Lab) -> Sweep:
    points = plan_points(of)
    return Sweep(
        scenario=of,
        points=points,
        labs={topology_key(points[0].topology): model},
        reader=None,  # type: ignore[arg-type]
    )


def test_packages_are_looked_for_before_anything_is_deployed() -> None:
    model, _ = small_lab()
    check_needs(sweep(scenario(needs=("numpy",)), model))
    with pytest.raises(CapabilityError, match="needs the Python package no-such-package") as caught:
        check_needs(sweep(scenario(needs=("numpy", "no-such-package")), model))
    assert caught.value.hint == "pip install no-such-package"


def test_simulation_refuses_a_program_by_name() -> None:
    model, _ = small_lab()
    with pytest.raises(ScenarioError, match="--backend simulation has no hosts that a program could run on"):
        check_supported(sweep(scenario(), model))


def test_every_program_is_expected_to_succeed_unless_the_file_says_otherwise() -> None:
    text = "name: x\ntopology: {file: x.yml}\nworkload: {kind: program, command: [a]}\n"
    read = load_scenario_text(text, file="x.yml").scenario
    (own,) = read.expect
    assert (own.metric, own.maximum) == ("program_exit", 0.0) and read.by_programs
    fails = text + "expect:\n  - {metric: program_exit, min: 1, source: it is to fail}\n"
    (written,) = load_scenario_text(fails, file="x.yml").scenario.expect
    assert (written.minimum, written.maximum) == (1.0, None)
