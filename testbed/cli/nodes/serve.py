"""The verb `serve metrics`. The server itself is in `metrics_server`."""

from typing import Annotated

import typer

from testbed.cli.panels import NODES_AND_LINKS, verb_group

app = verb_group("serve", NODES_AND_LINKS, "Serve what a lab measures over HTTP.")


@app.command()
def metrics(
    listen: Annotated[str, typer.Option("--listen", help="Address and port.")] = "127.0.0.1:9464",
    name: Annotated[str | None, typer.Option("-n", "--name", help="Lab name; default: all labs.")] = None,
    histograms: Annotated[bool, typer.Option("--histograms", help="Queue depth histograms, too.")] = False,
) -> None:
    """Serve the counters of all labs as OpenMetrics, until Ctrl-C."""
    from testbed.cli.nodes.metrics_server import serve_metrics

    serve_metrics(name, listen, histograms=histograms)
