"""The verb `decode`. What it prints is made in `packets`."""

from testbed.cli import options
from testbed.cli.command import argument, command, option


@command("decode")
@argument("file", metavar="FILE", help="pcap or pcapng; '-': standard input.")
@option("--filter", multiple=True, help="Only packets with FIELD=VALUE or FIELD!=VALUE: opcode=CNP.")
@option("--pdc", help="Only UET packets of PDCID, or of PDCID@ADDRESS, both ways.")
@option("--summary", is_flag=True, help="Instead of packets what each queue pair or PDC had: bytes, marks, CNPs.")
@options.count
@option("-v", "--verbose", is_flag=True, help="Every field.")
@option("as_json", "--json", is_flag=True, help="JSON with every field: --format json.")
@option(
    "-f", "--format", default="table", callback=options.parse_format, help="table or json; with --summary csv, too."
)
def decode(
    file: str,
    filter: tuple[str, ...],
    pdc: str | None,
    summary: bool,
    count: int | None,
    verbose: bool,
    as_json: bool,
    format: options.Format,
) -> None:
    """Show the RoCE and UET packets of a capture file, and the frames of scale-up links and InfiniBand."""
    from testbed.cli.nodes.packets import print_flows, print_packets

    form = options.Format.JSON if as_json else format
    if summary:
        print_flows(file, form, count=count, filters=filter, pdc=pdc)
    else:
        print_packets(file, form, count=count, filters=filter, pdc=pdc, verbose=verbose)
