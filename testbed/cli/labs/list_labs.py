"""The verb `list`."""

import os

from testbed.cli import options
from testbed.cli.command import command


@command("list")
@options.format_option
def list_labs(format: options.Format) -> None:
    """List the labs of this machine, and those over several that you have deployed. Needs root, which alone sees how
    labs are, unless there are only such."""
    from testbed.cli.lab_choice import require_sight
    from testbed.cli.machine.over import spread_rows
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.listing import ListedLab, listed_labs
    from testbed.lab.core.deploy.records.state import StateDirectory

    spread = spread_rows()
    if not spread:
        require_sight("listing labs")
    here = list(listed_labs(StateDirectory())) if os.geteuid() == 0 else []
    emit([*here, *spread], ListedLab, format)
