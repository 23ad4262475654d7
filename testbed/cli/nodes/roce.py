"""The verb `roce states`: the states of a queue pair. The packets of RoCE are shown by `decode`."""

from testbed.cli.panels import NODES_AND_LINKS, verb_group

app = verb_group("roce", NODES_AND_LINKS, "Look at the RoCE transport.")


@app.callback()
def roce() -> None:
    """Look at the RoCE transport."""


@app.command()
def states() -> None:
    """Print the states of a queue pair as a Mermaid diagram."""
    from testbed.protocols.roce.states import state_diagram

    print(state_diagram(), end="")
