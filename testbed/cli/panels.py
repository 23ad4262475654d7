"""The panels that `testbed --help` groups its verbs in; every verb names its own."""

from __future__ import annotations

import typer

LABS = "Labs"
"""Bringing labs up and down, looking at them as a whole, and the files that describe them."""
NODES_AND_LINKS = "Nodes and links"
"""Inside a lab: its nodes, what they send each other, its links and queues."""
SCENARIOS_AND_RESULTS = "Scenarios and results"
"""Driving traffic, and reading and comparing what was measured."""
MACHINE = "Machine"
"""This machine, the lab VM and the images of containers."""

PANELS = (LABS, NODES_AND_LINKS, SCENARIOS_AND_RESULTS, MACHINE)
"""In the order in which they are printed."""


def verb_group(name: str, panel: str, help: str) -> typer.Typer:
    """Make a verb that has verbs of its own, such as `link`, to be added to the root group."""
    app = typer.Typer(name=name, help=help, no_args_is_help=True, rich_markup_mode=None)
    app.info.rich_help_panel = panel  # Typer's own parameter of that name does not come through `add_typer`
    return app
