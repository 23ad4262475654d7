"""The verb `job`: a workload on the hosts of a Slurm job."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from testbed.base.errors import ExitCode, ScenarioError
from testbed.base.rows import column
from testbed.cli import options
from testbed.cli.command import argument, command, option

if TYPE_CHECKING:
    from testbed.record.samples import CollectiveResult


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRow:
    """The bytes that a workload without collectives has moved."""

    kind: str
    ranks: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """A collective operation, in nccl-tests' terms."""

    kind: str
    algorithm: str
    ranks: int
    bytes: int
    seconds: float
    algbw_bps: int = column("algbw bit/s")
    busbw_bps: int = column("busbw bit/s")
    wrong: int | None

    @classmethod
    def of(cls, result: "CollectiveResult") -> Self:
        return cls(
            kind=result.kind,
            algorithm=result.algorithm,
            ranks=result.ranks,
            bytes=result.size_bytes,
            seconds=round(result.seconds, 6),
            algbw_bps=round(result.algbw_bps),
            busbw_bps=round(result.busbw_bps),
            wrong=result.wrong,
        )


@command("job", codes={0: "all data has arrived", 1: "data was wrong", 2: "the traffic broke off"})
@argument("kind", metavar="KIND", help="A kind of workload: `testbed workloads` lists them.")
@argument("parameters", nargs=-1, metavar="[KEY=VALUE]...", help="Its parameters: bytes=16MiB.")
@option("--transport", default="tcp", help="tcp, roce or uet.")
@options.lab_name
@options.format_option
def job(kind: str, parameters: tuple[str, ...], transport: str, name: str | None, format: options.Format) -> None:
    """Run a workload on the hosts of the Slurm job in whose batch script this is."""
    from testbed.base.interrupt import Interrupt
    from testbed.cli.lab_choice import open_lab, parse_settings
    from testbed.cli.output import emit
    from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
    from testbed.run.placed.job_lab import JobLab, hosts_of_job
    from testbed.run.placed.traffic import make_traffic
    from testbed.run.schema.file import load_scenario_text

    hosts = hosts_of_job()
    written = parse_settings(parameters)
    overrides = {
        "workload.kind": kind,
        "workload.ranks.hosts": list(hosts),
        "transport.kind": transport,
        **{f"workload.{key}": value for key, value in written.items()},
    }
    scenario = load_scenario_text("name: job\ntopology: {file: lab.yml}\n", file="job", overrides=overrides).scenario
    if scenario.workload.is_program:
        raise ScenarioError("a program of one's own is no workload of a job", hint="srun starts it in the job itself")
    if scenario.by_programs:
        raise ScenarioError("a job's hosts move bytes, and do not send for a time", hint="bytes=16MiB")
    lab = JobLab(open_lab(name or os.environ.get("SLURM_CLUSTER_NAME")))
    seen = lab.of_network(*scenario.workload.ranks.networks_in(lab.model))
    traffic = make_traffic(scenario, seen, seed=scenario.repeat.seed)
    with Interrupt() as interrupt, WorkloadRunner(seen, scenario.transport, hosts, interrupt=interrupt) as runner:
        options = WorkloadRunOptions(seed=traffic.seed, limit_s=scenario.workload.time_limit.seconds)
        result = runner.run(traffic.workload, traffic.placement.nics, options)
    if result.failure is not None:
        raise result.failure
    if result.interrupted:
        sys.exit(ExitCode.INTERRUPTED)
    if result.collectives:
        emit(list(map(CollectiveRow.of, result.collectives)), CollectiveRow, format)
    else:
        size = sum(step.size_bytes for step in traffic.workload.transfers)
        moved = MovedRow(kind=kind, ranks=traffic.workload.ranks, bytes=size, seconds=round(result.elapsed_s, 6))
        emit([moved], MovedRow, format)
    if any(one.wrong for one in result.collectives):
        sys.exit(ExitCode.FAIL)
