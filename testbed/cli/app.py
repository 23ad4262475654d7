"""The `testbed` command: its verbs and their options. Each verb's work is in a module of its own, loaded on use."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from testbed.cli.format_option import Form, parse_format
from testbed.cli.images import images_app
from testbed.cli.record_verbs import record_app, results_app
from testbed.cli.scenario_verbs import scenario_app
from testbed.cli.signals import stand_by_the_outcome
from testbed.cli.vm import vm_app
from testbed.cli.words import WORDS, RootGroup
from testbed.errors import TestbedError
from testbed.version import __version__

app = typer.Typer(
    name="testbed",
    cls=RootGroup,
    help="A scale model of an AI data-centre fabric on one Linux machine: real FRR, real kernel, real packets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"auto_envvar_prefix": "TESTBED", "help_option_names": ["-h", "--help"]},
)
link_app = typer.Typer(help="Change links of a live lab, and undo it.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(link_app, name="link")
serve_app = typer.Typer(help="Serve what a lab measures over HTTP.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(serve_app, name="serve")
pfc_app = typer.Typer(help="Show pausing, and provoke it.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(pfc_app, name="pfc")
uet_app = typer.Typer(help="Look at the UET transport.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(uet_app, name="uet")
app.add_typer(vm_app, name="vm")
app.add_typer(images_app, name="images")
app.add_typer(scenario_app)
app.add_typer(record_app)
app.add_typer(results_app, name="results")

Topology = Annotated[
    str | None,
    typer.Option("-t", "--topology", help="Topology file, '-' for standard input; default: the only one here."),
]
LabName = Annotated[str | None, typer.Option("-n", "--name", help="Lab name; default: the only lab deployed.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a key: --set fabric.hosts=4.")]
NodeFilter = Annotated[
    str | None, typer.Option("--node-filter", help="Only nodes matching these comma-separated patterns.")
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for routing to converge.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.")]
PortArgument = Annotated[str, typer.Argument(metavar="NODE:IF", help="An interface of a node.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"testbed {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "warning",
    on: Annotated[str | None, typer.Option("--on", help="Run the verb there: vm, or ssh://user@host.")] = None,
    clock: Annotated[str, typer.Option("--clock", help="Of --on vm: wall, or virtual (for run).")] = "wall",
) -> None:
    """A scale model of an AI data-centre fabric on one Linux machine."""
    import logging

    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise TestbedError(f"--log-level {log_level}: expected debug, info, warning or error")
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    if on is not None and context.invoked_subcommand != "vm":
        from testbed.cli import vm

        raise typer.Exit(vm.run_elsewhere(on, clock, context.meta[WORDS]))
    if clock != "wall":
        raise TestbedError("--clock virtual: time is virtual in the lab VM only: --on vm")


@app.command()
def deploy(
    topology: Topology = None,
    name: LabName = None,
    set: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the operations and touch nothing.")] = False,
    reconfigure: Annotated[bool, typer.Option("--reconfigure", help="Replace a lab of that name.")] = False,
    keep_failed: Annotated[bool, typer.Option("--keep-failed", help="Do not undo a deploy that failed.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until routing has converged.")] = True,
    timeout: Timeout = 120.0,
    runtime: Annotated[str, typer.Option("--runtime", help="netns, or mininet: Mininet's objects, too.")] = "netns",
    format: Form = "table",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> None:
    """Bring a lab up and wait until its routing has converged. Deploying it twice changes nothing."""
    from testbed.cli import lifecycle

    lifecycle.deploy(
        topology,
        name,
        set or [],
        dry_run=dry_run,
        reconfigure=reconfigure,
        keep_failed=keep_failed,
        wait=wait,
        timeout_s=timeout,
        form=parse_format(format),
        quiet=quiet,
        runtime=runtime,
    )


@app.command()
def destroy(
    name: LabName = None,
    topology: Topology = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="All labs of this machine.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask (with --all).")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> None:
    """Remove exactly what a lab created; needs its name alone, and works after a crash."""
    from testbed.cli import lifecycle

    lifecycle.destroy(name, topology, every=all, yes=yes, quiet=quiet)


@app.command()
def inspect(
    what: Annotated[
        str, typer.Argument(metavar="[nodes|links|routes|bgp|scale|sizing|qos]", help="What to show.")
    ] = "nodes",
    name: LabName = None,
    topology: Topology = None,
    node_filter: NodeFilter = None,
    format: Form = "table",
) -> None:
    """Show a deployed lab: its nodes, links, kernel routes, BGP sessions, scale, sizing; QoS of a file (-t), too."""
    from testbed.cli import inspection

    inspection.inspect(what, name, topology, node_filter, parse_format(format))


@app.command(name="list")
def list_labs(format: Form = "table") -> None:
    """List the labs of this machine."""
    from testbed.cli import inspection

    inspection.list_labs(parse_format(format))


@app.command(context_settings={"allow_extra_args": False, "ignore_unknown_options": True})
def exec(
    node: NodeArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    name: LabName = None,
) -> None:
    """Run a command in a node; its exit code is ours."""
    from testbed.cli import nodes

    raise typer.Exit(nodes.execute(name, node, command))


@app.command()
def shell(node: NodeArgument, name: LabName = None) -> None:
    """Open a shell in a node."""
    from testbed.cli import nodes

    raise typer.Exit(nodes.shell(name, node))


@app.command(name="mininet-cli")
def mininet_cli(
    name: LabName = None,
    script: Annotated[Path | None, typer.Option("--script", help="Commands to run; default: a prompt.")] = None,
) -> None:
    """Open Mininet's prompt on a deployed lab, of whatever runtime: nodes, net, pingall, NODE COMMAND."""
    from testbed.cli import mininet_prompt

    mininet_prompt.prompt(name, script)


@app.command()
def capture(
    port: PortArgument,
    write: Annotated[str | None, typer.Option("-w", "--write", help="Write a pcap file ('-': stdout).")] = None,
    count: Annotated[int | None, typer.Option("-c", "--count", help="Stop after so many packets.")] = None,
    expression: Annotated[
        list[str] | None, typer.Argument(metavar="[FILTER...]", help="Only packets that this filter of tcpdump passes.")
    ] = None,
    name: LabName = None,
) -> None:
    """Capture packets of an interface with tcpdump."""
    from testbed.cli import nodes

    raise typer.Exit(nodes.capture(name, port, write, count, expression or []))


@app.command()
def decode(
    file: Annotated[str, typer.Argument(metavar="FILE", help="pcap or pcapng; '-': standard input.")],
    filter: Annotated[
        list[str] | None, typer.Option("--filter", help="Only packets with FIELD=VALUE or FIELD!=VALUE: type=NACK.")
    ] = None,
    pdc: Annotated[
        str | None, typer.Option("--pdc", help="Only packets of PDCID, or of PDCID@ADDRESS, both ways.")
    ] = None,
    count: Annotated[int | None, typer.Option("-c", "--count", help="Stop after so many packets.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Every field.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with every field: --format json.")] = False,
    format: Annotated[str, typer.Option("-f", "--format", help="table or json.")] = "table",
) -> None:
    """Show the UET packets of a capture file."""
    from testbed.cli import decode as verb
    from testbed.cli.output import Format

    form = Format.JSON if as_json else parse_format(format)
    verb.decode(file, form, count=count, filters=filter or [], pdc=pdc, verbose=verbose)


@uet_app.command("plot")
def uet_plot(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Events of an endpoint, one JSON object a line.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture to write: an .svg file.")] = Path("trace.svg"),
    pdc: Annotated[int | None, typer.Option("--pdc", help="PDCID; default: the one that sent most.")] = None,
) -> None:
    """Draw window, round trips, paths and losses of a PDC over time."""
    from testbed.cli import uet

    uet.plot(trace, output, pdc)


@uet_app.command("states")
def uet_states() -> None:
    """Print the states of a packet delivery context as a Mermaid diagram."""
    from testbed.cli import uet

    uet.states()


@app.command()
def logs(
    node: NodeArgument,
    daemon: Annotated[str | None, typer.Option("-d", "--daemon", help="Only zebra, bgpd or bfdd.")] = None,
    follow: Annotated[bool, typer.Option("-F", "--follow", help="Keep printing what is added.")] = False,
    name: LabName = None,
) -> None:
    """Print the logs of a switch's daemons."""
    from testbed.cli import nodes

    nodes.logs(name, node, daemon, follow=follow)


@app.command()
def events(
    name: LabName = None,
    count: Annotated[int | None, typer.Option("-c", "--count", help="Stop after so many events.")] = None,
) -> None:
    """Print what happens in a lab as JSON lines: daemons that die, links, BGP sessions, pause storms."""
    from testbed.cli import observe

    observe.events(name, count)


@app.command()
def check(
    name: LabName = None,
    topology: Topology = None,
    rtt: Annotated[bool, typer.Option("--rtt", help="Compare modelled and achieved base RTT instead.")] = False,
    format: Form = "table",
) -> None:
    """Test a live lab: sessions, ECMP width, rails, path MTU, black holes. Exit 0, 1, or 2 for 'cannot say'."""
    from testbed.cli import observe

    raise typer.Exit(observe.check(name, topology, parse_format(format), rtt=rtt))


@app.command()
def validate(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE...]", help="Topologies and scenarios.")] = None,
    topology: Topology = None,
    set: Settings = None,
    format: Form = "table",
) -> None:
    """Check topology files and report their sizing, or scenario files. Touches nothing, needs no root."""
    from testbed.cli import offline

    offline.validate(topology, set or [], parse_format(format), files=files or [])


@app.command()
def generate(
    design: Annotated[str | None, typer.Argument(metavar="[DESIGN]", help="A design; default: list them.")] = None,
    set: Settings = None,
    name: Annotated[str, typer.Option("-n", "--name", help="Lab name to write.")] = "lab",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; default: print.")] = None,
    format: Form = "table",
) -> None:
    """Write a topology file for a design; without DESIGN, list the designs."""
    from testbed.cli import offline

    offline.generate(design, set or [], name, output, parse_format(format))


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(metavar="[topology|scenario]", help="Whose keys.")] = "topology",
) -> None:
    """Print the JSON Schema of a file, for editors."""
    from testbed.cli import offline

    offline.schema(kind)


@app.command()
def graph(
    topology: Topology = None,
    name: LabName = None,
    set: Settings = None,
    kind: Annotated[str, typer.Option("--kind", "-k", help="html, dot or mermaid.")] = "html",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File; default NAME.html, or print.")] = None,
) -> None:
    """Draw a lab: a self-contained HTML page, dot or mermaid."""
    from testbed.cli import offline

    offline.graph(topology, name, set or [], kind, output)


@app.command()
def doctor(
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Probe again what was probed since the last boot.")
    ] = False,
    format: Form = "table",
) -> None:
    """Say what this machine has and lacks, which mechanism each feature will use, and how to get what is missing."""
    from testbed.cli import machine

    raise typer.Exit(machine.doctor(parse_format(format), refresh=refresh))


@app.command()
def metrics(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One metric; default: all.")] = None,
    format: Form = "table",
) -> None:
    """Define the metrics: unit, formula, source, and which way is better."""
    from testbed.cli import metrics as definitions

    definitions.metrics(name, parse_format(format))


@app.command()
def stats(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE|NODE:IF...] [SPAN]", help="Only these nodes or ports; measured for a span."),
    ] = None,
    name: LabName = None,
    traffic_class: Annotated[str | None, typer.Option("--class", help="Only this traffic class.")] = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Queues that saw nothing, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh after each SPAN (default 1s).")] = False,
    reset_max: Annotated[bool, typer.Option("--reset-max", help="Let the maxima start anew first.")] = False,
    format: Form = "table",
) -> None:
    """Show what the queues saw since the deploy, or in a SPAN such as 2s: packets, drops, marks, pauses, depths."""
    from testbed.cli import stats as verb

    verb.stats(
        name,
        patterns or [],
        class_name=traffic_class,
        every=all,
        watch=watch,
        reset=reset_max,
        form=parse_format(format),
    )


@serve_app.command("metrics")
def serve_metrics(
    listen: Annotated[str, typer.Option("--listen", help="Address and port.")] = "127.0.0.1:9464",
    name: Annotated[str | None, typer.Option("-n", "--name", help="Lab name; default: all labs.")] = None,
    histograms: Annotated[bool, typer.Option("--histograms", help="Queue depth histograms, too.")] = False,
) -> None:
    """Serve the counters of all labs as OpenMetrics, until Ctrl-C."""
    from testbed.cli import serve

    serve.serve_metrics(name, listen, histograms=histograms)


@link_app.command("set")
def link_set(
    port: PortArgument,
    rate: Annotated[
        str | None, typer.Option("--rate", help="50% of the declared rate, or a rate of the fabric such as 100G.")
    ] = None,
    lab_rate: Annotated[bool, typer.Option("--lab-rate", help="--rate is meant in the lab: 5M are 5 Mbit/s.")] = False,
    delay: Annotated[str | None, typer.Option("--delay", help="One way, in fabric time: 5us.")] = None,
    jitter: Annotated[str | None, typer.Option("--jitter", help="How much the delay varies: 1us.")] = None,
    loss: Annotated[str | None, typer.Option("--loss", help="Share of packets lost: 1%.")] = None,
    loss_every: Annotated[int | None, typer.Option("--loss-every", help="Lose one packet in so many.")] = None,
    corruption: Annotated[str | None, typer.Option("--corruption", help="Share of packets with a bad byte.")] = None,
    silent: Annotated[
        bool | None, typer.Option("--silent/--no-silent", help="Carrier stays up, every packet is lost.")
    ] = None,
    both: Annotated[bool, typer.Option("--both", help="In both directions.")] = False,
    name: LabName = None,
) -> None:
    """Change what NODE:IF sends: rate, delay, loss. `link reset` undoes it."""
    from testbed.cli import links

    change = links.change_of(
        rate=rate,
        lab_rate=lab_rate,
        delay=delay,
        jitter=jitter,
        loss=loss,
        loss_every=loss_every,
        corruption=corruption,
        silent=silent,
    )
    links.set_link(name, port, change, both=both)


@link_app.command("show")
def link_show(
    port: Annotated[str | None, typer.Argument(metavar="[NODE:IF]", help="One end of a link.")] = None,
    name: LabName = None,
    format: Form = "table",
) -> None:
    """Show declared and changed values of a link, or of all that were changed."""
    from testbed.cli import links

    links.show(name, port, parse_format(format))


@link_app.command("reset")
def link_reset(
    port: Annotated[str | None, typer.Argument(metavar="[NODE:IF]", help="One end of a link.")] = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Every link of the lab.")] = False,
    name: LabName = None,
) -> None:
    """Bring a link back to what the topology declares."""
    from testbed.cli import links

    links.reset(name, port, every=all)


@pfc_app.command("show")
def pfc_show(
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE|NODE:IF...]", help="Only these nodes or ports.")
    ] = None,
    name: LabName = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Lossless queues that never paused, too.")] = False,
    format: Form = "table",
) -> None:
    """Show each lossless queue: paused or not, pause frames each way, paused time, how fast it was paused."""
    from testbed.cli import pfc

    pfc.show(name, patterns or [], every=all, form=parse_format(format))


@pfc_app.command("storm")
def pfc_storm(
    port: PortArgument,
    duration: Annotated[str, typer.Option("--for", help="How long, in lab time: 2s, 500ms.")],
    traffic_class: Annotated[str | None, typer.Option("--class", help="Its name; default: the only one.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Or its priority, 0 to 7.")] = None,
    name: LabName = None,
) -> None:
    """Have NODE:IF pause a lossless class of its peer without a reason, as a broken NIC does."""
    from testbed.cli import pfc

    pfc.storm(name, port, class_name=traffic_class, priority=priority, duration=duration)


@link_app.command("down")
def link_down(port: PortArgument, name: LabName = None) -> None:
    """Take the link at NODE:IF down; the other end loses its carrier."""
    from testbed.cli import links

    links.set_up(name, port, up=False)


@link_app.command("up")
def link_up(port: PortArgument, name: LabName = None) -> None:
    """Bring the link at NODE:IF up again."""
    from testbed.cli import links

    links.set_up(name, port, up=True)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    stand_by_the_outcome()
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: errors become one clear message and an exit code.

    The first SIGINT or SIGTERM interrupts; what follows it only undoes, and more of them change nothing.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        app(prog_name="testbed")
    except TestbedError as error:
        _fail(str(error), error.exit_code if error.exit_code else 1)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except SystemExit:
        stand_by_the_outcome()
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EDQUOT):
            raise
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror}{where}", 1)


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
