"""The verb `list`."""

from testbed.cli import options
from testbed.cli.command import command


@command("list")
@options.format_option
def list_labs(format: options.Format) -> None:
    """List the labs of this machine."""
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.listing import ListedLab, listed_labs
    from testbed.lab.core.deploy.records.state import StateDirectory

    emit(list(listed_labs(StateDirectory())), ListedLab, format)
