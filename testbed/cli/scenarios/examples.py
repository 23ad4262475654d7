"""The verb `examples`."""

from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import PATH, argument, command


@command("examples")
@argument(
    "directory",
    metavar="[DIR]",
    required=False,
    type=PATH,
    help="Where topologies/ and scenarios/ are written; without it, they are listed.",
)
@options.format_option
def examples(directory: Path | None, format: options.Format) -> None:
    """List the topologies and scenarios that come with testbed, or copy them into a directory."""
    from testbed.api.shipped_files import ShippedFile, copy_shipped, shipped_files
    from testbed.base.yaml.reader import SUFFIXES
    from testbed.cli.output import emit

    if directory is not None and directory.suffix in SUFFIXES:
        raise TestbedError(
            f"{directory} is no name for a directory", hint="`testbed examples .` writes all of them here"
        )
    if directory is None:
        emit(shipped_files(), ShippedFile, format)
        return
    written = copy_shipped(directory)
    print(f"{directory}: {len(written)} files written" if written else f"{directory}: has all of them already")
