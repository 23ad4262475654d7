"""The verb `check`."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import FormatOption, LabName, NetworkName, Topology, parse_format
from testbed.cli.panels import LABS

if TYPE_CHECKING:
    from testbed.cli.output import Format
    from testbed.lab.core.deploy.watch.check import CheckReport
    from testbed.lab.core.deploy.watch.rtt import RttReport

app = typer.Typer()


@app.command(rich_help_panel=LABS)
def check(
    name: LabName = None,
    topology: Topology = None,
    rtt: Annotated[bool, typer.Option("--rtt", help="Compare modelled and achieved base RTT instead.")] = False,
    isolation: Annotated[
        bool, typer.Option("--isolation", help="Test who reaches whom and attack every access port instead.")
    ] = False,
    network: NetworkName = None,
    format: FormatOption = "table",
) -> None:
    """Test a live lab: sessions, ECMP width, rails, path MTU, black holes. Exit 0, 1, or 2 for 'cannot say'."""
    from testbed.base.errors import TestbedError
    from testbed.cli.lab_choice import check_network, open_lab
    from testbed.lab.core.deploy.watch.check import check_lab
    from testbed.lab.core.deploy.watch.rtt import measure_rtt

    if rtt and isolation:
        raise TestbedError("--rtt and --isolation are two checks", hint="one after the other")
    form = parse_format(format)
    lab = open_lab(name, topology)
    check_network(lab.model, network)
    if isolation:
        from testbed.cli.output import Format
        from testbed.lab.checks.isolation.check import check_isolation, untried_lines

        attacked = check_isolation(lab, network)
        code = _print_tests(attacked, form)
        for line in untried_lines(attacked.attacks) if form is Format.TABLE else ():
            print(f"  {line}")
        raise typer.Exit(code)
    lab = lab if network is None else lab.of_network(network)
    raise typer.Exit(_print_rtt(measure_rtt(lab), form) if rtt else _print_tests(check_lab(lab), form))


def _print_tests(report: "CheckReport", form: "Format") -> int:
    """Print what each live test found; returns the exit code."""
    from testbed.cli.output import Format, emit_rows

    rows = [{"test": result.name, "status": result.status.value, "detail": result.detail} for result in report.results]
    document = {"lab": report.lab, "exit_code": report.exit_code, "tests": dataclasses.asdict(report)["results"]}
    document["networks"] = by_network = report.by_network
    if attacks := dataclasses.asdict(report).get("attacks"):
        document["attacks"] = attacks
    emit_rows(rows, ["test", "status", "detail"], form, json_document=document)
    if form is Format.TABLE:
        for result in report.results:
            for line in result.failures:
                print(f"  {result.name}: {line}")
        if len(by_network) > 1:
            print(f"checks by network: {', '.join(f'{name} {count:,}' for name, count in by_network.items())}")
    return report.exit_code


def _print_rtt(report: "RttReport", form: "Format") -> int:
    """Print modelled and achieved base RTT of each class of paths; returns the exit code."""
    from testbed.base.units import Duration
    from testbed.cli.output import Format, emit_rows

    rows = [
        {
            "from": path.a,
            "to": path.b,
            "switches": path.switches,
            "delay by": path.delay_by,
            "modelled": str(Duration(path.modelled_ns)),
            "achieved": "lost" if path.achieved_ns is None else str(Duration(path.achieved_ns)),
            "with endpoints": "" if path.compared_ns is None else str(Duration(path.compared_ns)),
            "status": path.status.value,
        }
        for path in report.paths
    ]
    document = {
        "lab": report.lab,
        "k": report.k,
        "exit_code": report.exit_code,
        "paths": [dataclasses.asdict(path) | {"compared_ns": path.compared_ns} for path in report.paths],
    }
    columns = ["from", "to", "switches", "delay by", "modelled", "achieved", "with endpoints", "status"]
    emit_rows(
        rows, columns, form, json_document=document, title=f"{report.lab}: base RTT in lab time (k = {report.k:g})"
    )
    if form is Format.TABLE:
        for path in report.paths:
            if path.detail:
                print(f"  {path.a} to {path.b}: {path.detail}")
        if any(path.endpoint_ns for path in report.paths):
            print("  delay by endpoint acts in our own transports; TCP and kernel RDMA see the achieved RTT")
    return report.exit_code
