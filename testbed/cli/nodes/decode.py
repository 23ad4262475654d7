"""The verb `decode`. What it prints is made in `uet_packets`."""

from typing import Annotated

import typer

from testbed.cli.options import PacketCount, parse_format
from testbed.cli.panels import NODES_AND_LINKS

app = typer.Typer()


@app.command(rich_help_panel=NODES_AND_LINKS)
def decode(
    file: Annotated[str, typer.Argument(metavar="FILE", help="pcap or pcapng; '-': standard input.")],
    filter: Annotated[
        list[str] | None, typer.Option("--filter", help="Only packets with FIELD=VALUE or FIELD!=VALUE: type=NACK.")
    ] = None,
    pdc: Annotated[
        str | None, typer.Option("--pdc", help="Only packets of PDCID, or of PDCID@ADDRESS, both ways.")
    ] = None,
    count: PacketCount = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Every field.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with every field: --format json.")] = False,
    format: Annotated[str, typer.Option("-f", "--format", help="table or json.")] = "table",
) -> None:
    """Show the UET packets of a capture file."""
    from testbed.cli.nodes.uet_packets import print_uet_packets
    from testbed.cli.output import Format

    form = Format.JSON if as_json else parse_format(format)
    print_uet_packets(file, form, count=count, filters=filter or [], pdc=pdc, verbose=verbose)
