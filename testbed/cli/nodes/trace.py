"""The verb `trace`: the path that a flow takes through a lab, hop by hop."""

from testbed.base.errors import ExitCode
from testbed.cli import options
from testbed.cli.command import argument, command, option


@command("trace", codes={0: "the flow arrives", 1: "it does not"})
@argument("source", metavar="A", help="Where the flow begins: a node, or one of its NICs (NODE:IF).")
@argument("destination", metavar="B", help="Where it is to go: a node, NODE:IF, or an address.")
@option("--port", type=int, default=4791, help="Destination port; that of RoCEv2 by default.")
@option("--source-port", type=int, default=49152, help="Source port.")
@option("--protocol", default="udp", help="udp or tcp.")
@option("--class", "class_name", help="The traffic class whose queues are shown; default: that of DSCP 0.")
@option("--over", default="250ms", help="How long the load of ports is measured; 0: not at all.")
@options.lab_name
@options.format_option
def trace(
    source: str,
    destination: str,
    port: int,
    source_port: int,
    protocol: str,
    class_name: str | None,
    over: str,
    name: str | None,
    format: options.Format,
) -> None:
    """Show the path that a flow's hash takes from A to B, with queue and counters of each port on the way.

    Each node's kernel is asked for its route now, so links that are down and changed routes count. Where a flow takes
    several ways (spraying, link groups, tenants' tunnels) all of them are shown.
    """
    import sys

    from testbed.base.datapath.flow_hash import FiveTuple
    from testbed.base.rows import row_json
    from testbed.cli.counters.watch import parse_span_s
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.link_changes import wrong
    from testbed.cli.output import emit
    from testbed.lab.observe.flow_ends import flow_ends
    from testbed.lab.observe.flow_path import FlowTracer
    from testbed.lab.observe.flow_trace import TraceRow, trace_rows

    numbers = {"tcp": 6, "udp": 17}
    if protocol not in numbers:
        raise wrong(f"--protocol {protocol}: expected udp or tcp")
    for what, value in (("--port", port), ("--source-port", source_port)):
        if not 0 < value < 1 << 16:
            raise wrong(f"{what} {value}: ports are from 1 to 65535")
    lab = open_lab(name).whole
    near, far = flow_ends(lab, source, destination)
    packet = FiveTuple(
        source=near.address,
        destination=far.address,
        protocol=numbers[protocol],
        source_port=source_port,
        destination_port=port,
    )
    with FlowTracer(lab) as tracer:
        path = tracer.trace(near.node, near.place, far.node, packet)
    over_s = 0.0 if over in ("0", "0s") else parse_span_s(over)
    rows = trace_rows(lab, path, class_name=class_name, over_s=over_s)
    flow = f"{protocol} {packet.source}:{source_port} -> {packet.destination}:{port}"
    document = {
        "lab": lab.name,
        "source": source,
        "destination": destination,
        "protocol": protocol,
        "source_address": str(packet.source),
        "destination_address": str(packet.destination),
        "source_port": source_port,
        "destination_port": port,
        "arrives": path.arrives or None,
        "certain": path.is_certain,
        "lost": list(path.lost),
        "hops": list(map(row_json, rows)),
    }
    unknown = [name for name in ("marked_packets", "load_bps") if all(getattr(row, name) is None for row in rows)]
    emit(rows, TraceRow, format, title=f"{lab.name}: {flow}", document=document, without=unknown)
    if format is options.Format.TABLE:
        print(f"arrives at {path.arrives}" if path.arrives else f"does not arrive at {destination}")
        for line in path.lost:
            print(f"  {line}")
    if not path.arrives:
        sys.exit(ExitCode.FAIL)
