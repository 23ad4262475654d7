"""The verb `decode`. What it prints is made in `packets`."""

from typing import Annotated

import typer

from testbed.cli.options import PacketCount, parse_format
from testbed.cli.panels import NODES_AND_LINKS

app = typer.Typer()


@app.command(rich_help_panel=NODES_AND_LINKS)
def decode(
    file: Annotated[str, typer.Argument(metavar="FILE", help="pcap or pcapng; '-': standard input.")],
    filter: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Only packets with FIELD=VALUE or FIELD!=VALUE: opcode=CNP."),
    ] = None,
    pdc: Annotated[
        str | None, typer.Option("--pdc", help="Only UET packets of PDCID, or of PDCID@ADDRESS, both ways.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Instead of packets what each queue pair or PDC had: bytes, marks, CNPs.")
    ] = False,
    count: PacketCount = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Every field.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON with every field: --format json.")] = False,
    format: Annotated[str, typer.Option("-f", "--format", help="table or json; with --summary csv, too.")] = "table",
) -> None:
    """Show the RoCE and UET packets of a capture file, and the frames of scale-up links."""
    from testbed.cli.nodes.packets import print_flows, print_packets
    from testbed.cli.output import Format

    form = Format.JSON if as_json else parse_format(format)
    if summary:
        print_flows(file, form, count=count, filters=filter or [], pdc=pdc)
    else:
        print_packets(file, form, count=count, filters=filter or [], pdc=pdc, verbose=verbose)
