"""The verb `service restart`. How services stand is a view of `inspect`."""

from testbed.cli import options
from testbed.cli.command import Group, argument

service = Group("service", help="Start services of the management network again.")


@service.command("restart")
@argument("service", metavar="SERVICE", help="ssh, dns, ...: `inspect services` lists them.")
@argument("node", required=False, metavar="[NODE]", help="Only on this node.")
@options.lab_name
def restart(service: str, node: str | None, name: str | None) -> None:
    """End a service and start it again, on every node that runs it or on one."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.features.management.services_apply import restart_services

    nodes = restart_services(open_lab(name), service, node)
    print(f"{service} runs on {nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'}")
