"""The verb `list`."""

from testbed.cli import options
from testbed.cli.command import command


@command("list")
@options.format_option
def list_labs(format: options.Format) -> None:
    """List the labs of this machine. Needs root, which alone sees how they are."""
    from testbed.cli.lab_choice import require_sight
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.listing import ListedLab, listed_labs
    from testbed.lab.core.deploy.records.state import StateDirectory

    require_sight("listing labs")
    emit(list(listed_labs(StateDirectory())), ListedLab, format)
