"""The verb `roce states`: the states of a queue pair. The packets of RoCE are shown by `decode`."""

from testbed.cli.command import Group

roce = Group("roce", help="Look at the RoCE transport.")


@roce.command("states")
def states() -> None:
    """Print the states of a queue pair as a Mermaid diagram."""
    from testbed.protocols.roce.states import state_diagram

    print(state_diagram(), end="")
