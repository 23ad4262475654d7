"""The verbs `serve metrics` and `serve power`. The servers themselves are in `metrics_server` and `power_server`."""

from typing import Annotated

import typer

from testbed.cli.options import LabName
from testbed.cli.panels import NODES_AND_LINKS, verb_group

app = verb_group("serve", NODES_AND_LINKS, "Serve what a lab measures, and the power of its nodes, over HTTP.")


@app.command()
def metrics(
    listen: Annotated[str, typer.Option("--listen", help="Address and port.")] = "127.0.0.1:9464",
    name: Annotated[str | None, typer.Option("-n", "--name", help="Lab name; default: all labs.")] = None,
    histograms: Annotated[bool, typer.Option("--histograms", help="Queue depth histograms, too.")] = False,
) -> None:
    """Serve the counters of all labs as OpenMetrics, until Ctrl-C."""
    from testbed.cli.counters.metrics_server import serve_metrics

    serve_metrics(name, listen, histograms=histograms)


@app.command()
def power(
    listen: Annotated[str, typer.Option("--listen", help="Loopback address and port.")] = "127.0.0.1:9465",
    user: Annotated[str, typer.Option("--user", help="The user of the emulator, served beside root.")] = "",
    name: LabName = None,
) -> None:
    """Switch nodes off and on as an emulator of BMCs (sushy-emulator) notifies, until Ctrl-C."""
    from testbed.cli.lab_choice import lab_name
    from testbed.cli.nodes.power_server import serve_power

    serve_power(lab_name(name, None), listen, user)
