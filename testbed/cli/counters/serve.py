"""The verbs `serve metrics` and `serve power`. The servers themselves are in `metrics_server` and `power_server`."""

from testbed.cli import options
from testbed.cli.command import Group, option

serve = Group("serve", help="Serve what a lab measures, and the power of its nodes, over HTTP.")


@serve.command("metrics")
@option("--listen", default="127.0.0.1:9464", help="Address and port.")
@option("-n", "--name", help="Lab name; default: all labs.")
@option("--histograms", is_flag=True, help="Queue depth histograms, too.")
def metrics(listen: str, name: str | None, histograms: bool) -> None:
    """Serve the counters of all labs as OpenMetrics, until Ctrl-C."""
    from testbed.cli.counters.metrics_server import serve_metrics

    serve_metrics(name, listen, histograms=histograms)


@serve.command("power")
@option("--listen", default="127.0.0.1:9465", help="Loopback address and port.")
@option("--user", default="", show_default=False, help="The user of the emulator, served beside root.")
@options.lab_name
def power(listen: str, user: str, name: str | None) -> None:
    """Switch nodes off and on as an emulator of BMCs (sushy-emulator) notifies, until Ctrl-C."""
    from testbed.cli.lab_choice import lab_name
    from testbed.cli.nodes.power_server import serve_power

    serve_power(lab_name(name, None), listen, user)
