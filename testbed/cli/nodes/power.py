"""The verbs `power off`, `power on` and `power reset`."""

from testbed.cli.options import LabName, NodeArgument
from testbed.cli.panels import NODES_AND_LINKS, verb_group

app = verb_group("power", NODES_AND_LINKS, "Take the power of a node, and give it back.")


@app.command()
def off(node: NodeArgument, name: LabName = None) -> None:
    """Silence a node at once: its links go down, its processes are killed."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.power import power_off

    print(f"{node} is off" if power_off(open_lab(name), node) else f"{node} was off already")


@app.command()
def on(node: NodeArgument, name: LabName = None) -> None:
    """Bring a node up again, with its routing and its services."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.power import power_on

    print(f"{node} is on" if power_on(open_lab(name), node) else f"{node} was on already")


@app.command()
def reset(node: NodeArgument, name: LabName = None) -> None:
    """Take the power of a node, and give it back at once."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.core.deploy.power import power_off, power_on

    lab = open_lab(name)
    power_off(lab, node)
    power_on(lab, node)
    print(f"{node} is on")
