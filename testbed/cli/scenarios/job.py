"""The verb `job`: a workload on the hosts of a Slurm job."""

import os
import sys
from typing import TYPE_CHECKING, Any

from testbed.base.errors import ScenarioError
from testbed.cli import options
from testbed.cli.command import argument, command, option

if TYPE_CHECKING:
    from testbed.record.samples import CollectiveResult

COLUMNS = ("kind", "algorithm", "ranks", "bytes", "seconds", "algbw bit/s", "busbw bit/s", "wrong")


@command("job")
@argument("kind", metavar="KIND", help="A kind of workload: `testbed workloads` lists them.")
@argument("parameters", nargs=-1, metavar="[KEY=VALUE]...", help="Its parameters: bytes=16MiB.")
@option("--transport", default="tcp", help="tcp, roce or uet.")
@options.lab_name
@options.format_option
def job(kind: str, parameters: tuple[str, ...], transport: str, name: str | None, format: options.Format) -> None:
    """Run a workload on the hosts of the Slurm job in whose batch script this is; exit 1 where data was wrong."""
    from testbed.base.interrupt import Interrupt
    from testbed.cli.lab_choice import open_lab, parse_settings
    from testbed.cli.output import emit_rows
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
        sys.exit(130)
    if result.collectives:
        emit_rows([_row(one) for one in result.collectives], COLUMNS, format)
    else:
        size = sum(step.size_bytes for step in traffic.workload.transfers)
        row = {"kind": kind, "ranks": traffic.workload.ranks, "bytes": size, "seconds": round(result.elapsed_s, 6)}
        emit_rows([row], tuple(row), format)
    if any(one.wrong for one in result.collectives):
        sys.exit(1)


def _row(result: "CollectiveResult") -> dict[str, Any]:
    return {
        "kind": result.kind,
        "algorithm": result.algorithm,
        "ranks": result.ranks,
        "bytes": result.size_bytes,
        "seconds": round(result.seconds, 6),
        "algbw bit/s": round(result.algbw_bps),
        "busbw bit/s": round(result.busbw_bps),
        "wrong": result.wrong,
    }
