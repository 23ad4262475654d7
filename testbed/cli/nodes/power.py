"""The verbs `power off`, `power on` and `power reset`."""

from testbed.cli import options
from testbed.cli.command import Group

power = Group("power", help="Take the power of a node, and give it back.")


@power.command("off")
@options.node
@options.lab_name
def off(node: str, name: str | None) -> None:
    """Silence a node at once: its links go down, its processes are killed."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.power import power_off

    print(f"{node} is off" if power_off(open_lab(name), node) else f"{node} was off already")


@power.command("on")
@options.node
@options.lab_name
def on(node: str, name: str | None) -> None:
    """Bring a node up again, with its routing and its services."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.power import power_on

    print(f"{node} is on" if power_on(open_lab(name), node) else f"{node} was on already")


@power.command("reset")
@options.node
@options.lab_name
def reset(node: str, name: str | None) -> None:
    """Take the power of a node, and give it back at once."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.power import power_off, power_on

    lab = open_lab(name)
    power_off(lab, node)
    power_on(lab, node)
    print(f"{node} is on")
