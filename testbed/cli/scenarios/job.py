"""The verb `job`: a workload on the hosts of a Slurm job."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.base.errors import ScenarioError
from testbed.cli.options import FormatOption, LabName, parse_format
from testbed.cli.panels import SCENARIOS_AND_RESULTS

if TYPE_CHECKING:
    from testbed.record.samples import CollectiveResult

app = typer.Typer()
COLUMNS = ("kind", "algorithm", "ranks", "bytes", "seconds", "algbw bit/s", "busbw bit/s", "wrong")


@app.command(rich_help_panel=SCENARIOS_AND_RESULTS)
def job(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of workload: `testbed workloads` lists them.")],
    parameters: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its parameters: bytes=16MiB.")
    ] = None,
    transport: Annotated[str, typer.Option("--transport", help="tcp, roce or uet.")] = "tcp",
    name: LabName = None,
    format: FormatOption = "table",
) -> None:
    """Run a workload on the hosts of the Slurm job in whose batch script this is; exit 1 where data was wrong."""
    from testbed.base.interrupt import Interrupt
    from testbed.cli.lab_choice import open_lab, parse_settings
    from testbed.cli.output import emit_rows
    from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
    from testbed.run.placed.job_lab import JobLab, hosts_of_job
    from testbed.run.placed.traffic import make_traffic
    from testbed.run.schema.file import load_scenario_text

    form = parse_format(format)
    hosts = hosts_of_job()
    written = parse_settings(parameters or [])
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
        raise typer.Exit(130)
    if result.collectives:
        emit_rows([_row(one) for one in result.collectives], COLUMNS, form)
    else:
        size = sum(step.size_bytes for step in traffic.workload.transfers)
        row = {"kind": kind, "ranks": traffic.workload.ranks, "bytes": size, "seconds": round(result.elapsed_s, 6)}
        emit_rows([row], tuple(row), form)
    if any(one.wrong for one in result.collectives):
        raise typer.Exit(1)


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
