"""The verb `capture`."""

import shutil
import sys

from testbed.base.errors import CapabilityError, ExitCode, TestbedError
from testbed.cli import options
from testbed.cli.command import argument, command, option


@command("capture")
@argument("port", metavar="NODE:IF", help="An interface of a node, or a GPU's link to a plane: HOST.gpu1:plane2.")
@option("-w", "--write", help="Write a pcap file, of InfiniBand pcapng ('-': stdout).")
@options.count
@argument("expression", nargs=-1, metavar="[FILTER...]", help="Only packets that this filter of tcpdump passes.")
@options.lab_name
def capture(port: str, write: str | None, count: int | None, expression: tuple[str, ...], name: str | None) -> None:
    """Capture packets of an interface with tcpdump, or frames at a port of an InfiniBand back end."""
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.signals import code_of, terminal_handed_over
    from testbed.lab.features.scale_up.links import find_link, names_gpu_link

    lab = open_lab(name)
    if lab.whole.model.infiniband is not None:
        from testbed.cli.nodes.subnet_capture import capture_subnet
        from testbed.lab.features.infiniband.live import LiveSubnet

        subnet = LiveSubnet(lab)
        if subnet.is_port(port):
            if expression:
                raise TestbedError(
                    "filters are tcpdump's, which does not read frames of InfiniBand",
                    hint="capture them all, and `testbed decode FILE --filter dest_qp=17`",
                )
            sys.exit(capture_subnet(subnet, port, write=write, count=count))
    if names_gpu_link(port):
        link = find_link(lab.model, port)
        node, interface = link.host, link.interface
        place = None
    else:
        node, _, interface = port.partition(":")
        place = lab.port(node, interface)
    program = shutil.which("tcpdump") or shutil.which("tcpdump", path="/usr/sbin:/sbin")
    if program is None:
        raise CapabilityError("tcpdump is not installed", missing="tcpdump", hint="apt-get install tcpdump")
    argv = [program, "-n", "-i", interface]
    if write is not None:
        argv += ["-U", "-w", write, "-Z", "root"]
    if count is not None:
        argv += ["-c", str(count)]
    argv += expression
    process = lab.spawn_tool(node, argv) if place is None else lab.spawn_at(place, argv)
    with terminal_handed_over():
        code = code_of(process.wait())
    # What tcpdump complains of it has found before it captures: a filter, or a file that it cannot write.
    sys.exit(ExitCode.NOT_STARTED if code == 1 else code)
