"""The verbs `events` and `check`."""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import closing

from testbed.cli.labs import open_lab
from testbed.cli.output import Format, emit_rows
from testbed.deploy.watch.check import check_lab
from testbed.deploy.watch.events import EventStream
from testbed.deploy.watch.rtt import RttReport, measure_rtt
from testbed.units import Duration


def events(name: str | None, count: int | None) -> None:
    """JSON lines until interrupted, the lab is gone, or `count` lines were printed."""
    lab = open_lab(name)
    with closing(EventStream(lab)) as stream:
        for number, event in enumerate(stream, start=1):
            sys.stdout.write(json.dumps(dataclasses.asdict(event)) + "\n")
            sys.stdout.flush()
            if count is not None and number >= count:
                return


def check(name: str | None, topology: str | None, form: Format, *, rtt: bool = False) -> int:
    """Print the live tests' results and hand back the exit code. `rtt`: the base RTT instead of them."""
    if rtt:
        return _rtt(measure_rtt(open_lab(name, topology)), form)
    report = check_lab(open_lab(name, topology))
    rows = [{"test": result.name, "status": result.status.value, "detail": result.detail} for result in report.results]
    document = {"lab": report.lab, "exit_code": report.exit_code, "tests": dataclasses.asdict(report)["results"]}
    emit_rows(rows, ["test", "status", "detail"], form, json_document=document)
    if form is Format.TABLE:
        for result in report.results:
            for line in result.failures:
                print(f"  {result.name}: {line}")
    return report.exit_code


def _rtt(report: RttReport, form: Format) -> int:
    """Modelled and achieved base RTT of each class of paths."""
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
