"""The verb `check`."""

import dataclasses
import sys
from typing import TYPE_CHECKING

from testbed.base.rows import column
from testbed.cli import options
from testbed.cli.command import command, option

if TYPE_CHECKING:
    from testbed.lab.core.deploy.watch.check import CheckReport
    from testbed.lab.core.deploy.watch.rtt import RttReport


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RttRow:
    """Modelled and achieved base RTT of a class of paths."""

    a: str = column("from")
    b: str = column("to")
    switches: int
    delay_by: str = column("delay by")
    modelled: str
    achieved: str
    with_endpoints: str = column("with endpoints")
    status: str


@command("check", codes={0: "every test passed", 1: "a test failed", 2: "a test could not be made, and none failed"})
@options.lab_name
@options.topology
@option("--rtt", is_flag=True, help="Compare modelled and achieved base RTT instead.")
@option("--isolation", is_flag=True, help="Test who reaches whom and attack every access port instead.")
@options.network
@options.format_option
def check(
    name: str | None, topology: str | None, rtt: bool, isolation: bool, network: str | None, format: options.Format
) -> None:
    """Test a live lab: sessions, ECMP width, rails, path MTU, black holes."""
    from testbed.base.errors import TestbedError
    from testbed.cli.lab_choice import check_network, open_lab
    from testbed.cli.machine.over import spread_named
    from testbed.lab.core.deploy.watch.check import check_lab
    from testbed.lab.core.deploy.watch.rtt import measure_rtt

    if rtt and isolation:
        raise TestbedError("--rtt and --isolation are two checks", hint="one after the other")
    if (spread := spread_named(_words(name, topology))) is not None:
        if rtt or isolation or network is not None:
            raise TestbedError("--rtt, --isolation and --network are not for labs over several machines")
        from testbed.api.pool.over.live import check_spread

        sys.exit(_print_tests(check_spread(spread), format))
    lab = open_lab(name, topology)
    check_network(lab.model, network)
    if isolation:
        from testbed.lab.checks.isolation.check import check_isolation, untried_lines

        attacked = check_isolation(lab, network)
        code = _print_tests(attacked, format)
        for line in untried_lines(attacked.attacks) if format is options.Format.TABLE else ():
            print(f"  {line}")
        sys.exit(code)
    lab = lab if network is None else lab.of_network(network)
    sys.exit(_print_rtt(measure_rtt(lab), format) if rtt else _print_tests(check_lab(lab), format))


def _words(name: str | None, topology: str | None) -> list[str]:
    """The words of a command line that say which lab is meant."""
    if name is None and topology is not None:
        from testbed.cli.lab_choice import lab_name

        name = lab_name(None, topology)
    return ["check"] if name is None else ["check", "-n", name]


def _print_tests(report: "CheckReport", form: options.Format) -> int:
    """Print what each live test found; returns the exit code."""
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.watch.check import CheckResult

    document = {"lab": report.lab, "exit_code": report.exit_code, "tests": dataclasses.asdict(report)["results"]}
    document["networks"] = by_network = report.by_network
    if attacks := dataclasses.asdict(report).get("attacks"):
        document["attacks"] = attacks
    emit(report.results, CheckResult, form, document=document)
    if form is options.Format.TABLE:
        for result in report.results:
            for line in result.failures:
                print(f"  {result.name}: {line}")
        if len(by_network) > 1:
            print(f"checks by network: {', '.join(f'{name} {count:,}' for name, count in by_network.items())}")
    return report.exit_code


def _print_rtt(report: "RttReport", form: options.Format) -> int:
    """Print modelled and achieved base RTT of each class of paths; returns the exit code."""
    from testbed.base.units import Duration
    from testbed.cli.output import emit

    rows = [
        RttRow(
            a=path.a,
            b=path.b,
            switches=path.switches,
            delay_by=path.delay_by,
            modelled=str(Duration(path.modelled_ns)),
            achieved="lost" if path.achieved_ns is None else str(Duration(path.achieved_ns)),
            with_endpoints="" if path.compared_ns is None else str(Duration(path.compared_ns)),
            status=path.status.value,
        )
        for path in report.paths
    ]
    document = {
        "lab": report.lab,
        "k": report.k,
        "exit_code": report.exit_code,
        "paths": [dataclasses.asdict(path) | {"compared_ns": path.compared_ns} for path in report.paths],
    }
    title = f"{report.lab}: base RTT in lab time (k = {report.k:g})"
    emit(rows, RttRow, form, document=document, title=title)
    if form is options.Format.TABLE:
        for path in report.paths:
            if path.detail:
                print(f"  {path.a} to {path.b}: {path.detail}")
        if any(path.endpoint_ns for path in report.paths):
            print("  delay by endpoint acts in our own transports; TCP and kernel RDMA see the achieved RTT")
    return report.exit_code
