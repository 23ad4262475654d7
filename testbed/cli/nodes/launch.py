"""The verb `launch`."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import argument, command, option

if TYPE_CHECKING:
    from testbed.run.launch import LaunchOrder, RankLine


@command(
    "launch",
    context_settings={"allow_interspersed_args": False},
    codes={
        "own": "that of the first rank that failed, and 128 + n where signal n has ended it",
        124: "the time of --timeout is over",
        125: "what ranks depend on has ended: what starts them in a host, or what carries their bytes",
        126: "the program cannot be run",
        127: "there is no such program",
    },
)
@argument("command", nargs=-1, required=True, metavar="-- CMD...", help="The program and its arguments.")
@options.lab_name
@option("--ranks-per-host", type=int, help="Ranks on each host; default: 1.")
@option("--per-gpu", is_flag=True, help="A rank for each NIC of a host.")
@option("--hosts", help="On these hosts alone: A,B,... or patterns such as 'p1-s1-*'.")
@option("--order", default="rack", help="Of hosts: rack, interleave (the next is in the next segment), or list.")
@option("--transport", default="tcp", help="tcp; uet or roce, which carry the ranks' TCP; libfabric, for MPI.")
@option("--pmi", is_flag=True, help="Serve PMI-1 to the ranks: MPICH, Intel MPI.")
@option("--env", multiple=True, help="A variable of all ranks: KEY=VALUE, or KEY for ours.")
@option("--cc", help="Congestion control of the hosts' TCP meanwhile: cubic, bbr, ...")
@option("--timeout", help="End all ranks after so long: 10m.")
@option("--ipv6", is_flag=True, help="Ranks find each other by IPv6.")
@options.format_option
def launch(
    command: tuple[str, ...],
    name: str | None,
    ranks_per_host: int | None,
    per_gpu: bool,
    hosts: str | None,
    order: str,
    transport: str,
    pmi: bool,
    env: tuple[str, ...],
    cc: str | None,
    timeout: str | None,
    ipv6: bool,
    format: options.Format,
) -> None:
    """Start a program as ranks on the hosts of a lab, over their rails.

    The environment tells each rank who it is, where the others are and which interface is its rail: in the words of
    PyTorch, NCCL, libfabric, UCX, MPICH, OpenMPI and JAX. What it prints has its rank in front. When one fails, all
    end. A table of what rails and uplinks carried is the last.
    """
    from testbed.base.interrupt import Interrupt
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.launch_tables import print_result
    from testbed.run.launch import LaunchOptions, launch_ranks

    if per_gpu and ranks_per_host is not None:
        raise TestbedError("--per-gpu says how many ranks a host has", hint="leave out --ranks-per-host")
    chosen = LaunchOptions(
        hosts=tuple(filter(None, (hosts or "").split(","))),
        ranks_per_host=1 if ranks_per_host is None else ranks_per_host,
        per_gpu=per_gpu,
        order=_order(order),
        transport=transport,
        pmi=pmi,
        env=dict(map(_variable, env)),
        cc=cc or "",
        timeout_s=None if timeout is None else _seconds(timeout),
        ipv6=ipv6,
    )
    lab = open_lab(name)
    with Interrupt() as interrupt:
        for_people = format is options.Format.TABLE
        result = launch_ranks(lab, command, chosen, on_line=_printer(for_people), interrupt=interrupt)
    if result.failure:
        print(f"error: {result.failure}", file=sys.stderr)
    print_result(result, format)
    sys.exit(result.exit_code)


def _order(word: str) -> "LaunchOrder":
    from testbed.run.launch import LaunchOrder

    try:
        return LaunchOrder(word)
    except ValueError as error:
        raise TestbedError(f"--order {word}: expected {', '.join(LaunchOrder)}") from error


def _variable(text: str) -> tuple[str, str]:
    """Read KEY=VALUE, or KEY, whose value is that of our own environment. Raises `TestbedError`."""
    key, assigned, value = text.partition("=")
    if not key or (not assigned and key not in os.environ):
        raise TestbedError(f"--env {text}: expected KEY=VALUE, or a variable that is set here")
    return key, value if assigned else os.environ[key]


def _seconds(text: str) -> float:
    from testbed.base.units import TIME, QuantityError

    try:
        seconds = float(TIME.counted_in("s").read(text))
    except QuantityError as error:
        raise TestbedError(f"--timeout {text}: not a span of time", hint="for example 90, 30s or 10m") from error
    if seconds <= 0:
        raise TestbedError(f"--timeout {text}: expected more than nothing")
    return seconds


def _printer(for_people: bool) -> "Callable[[RankLine], None]":
    """Print lines of ranks as they come; where standard output is for programs, beside it."""

    def show(line: "RankLine") -> None:
        stream = sys.stderr if line.is_error or not for_people else sys.stdout
        print(f"[{line.rank}] {line.text}", file=stream, flush=True)

    return show
