"""The verb `import`."""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import argument, command, option


@command("import")
@argument("file", metavar="FILE", help="A topology of containerlab or netlab, '-' for standard input.")
@options.output
@option("-n", "--name", help="Lab name; default: that of the file.")
@option("--runtime", default="docker", help="Nodes with an image: docker keeps it, netns leaves it out.")
@options.format_option
def import_lab(file: str, output: Path | None, name: str | None, runtime: str, format: options.Format) -> None:
    """Make a topology of one of containerlab or netlab, and list what cannot be taken over as it is."""
    from testbed.base.yaml.reader import read_text
    from testbed.cli.output import emit
    from testbed.lab.formats.imported import Remark
    from testbed.lab.formats.importing import import_topology
    from testbed.lab.formats.node_keys import RUNTIMES

    if runtime not in RUNTIMES:
        raise TestbedError(f"--runtime {runtime}: expected {' or '.join(RUNTIMES)}")
    if output is None and format is not options.Format.TABLE:
        raise TestbedError(f"--format {format}: the topology is printed, too", hint="add -o FILE.yml")
    text, source = (sys.stdin.read(), "<stdin>") if file == "-" else (read_text(Path(file)), file)
    directory = Path.cwd() if file == "-" else Path(file).absolute().parent
    imported = import_topology(text, source, directory=directory, runtime=runtime, environment=os.environ, name=name)
    rows = list(imported.remarks)
    if output is None:
        sys.stdout.write(imported.text)
        with redirect_stdout(sys.stderr):
            _emit(rows)
        return
    with output.open("x") as stream:
        stream.write(imported.text)
    if format is not options.Format.TABLE:
        emit(rows, Remark, format)
        return
    _emit(rows)
    print(f"wrote {output}, of {imported.tool}: try `testbed validate -t {output}`")
    if imported.containers:
        print(f"{imported.containers} nodes are Docker containers; with --runtime netns they are network namespaces")


def _emit(rows: Sequence[object]) -> None:
    """Print what is not as it was."""
    from testbed.cli.output import emit
    from testbed.lab.formats.imported import Remark

    if rows:
        emit(rows, Remark, options.Format.TABLE, title="not as it was")
