"""The verb `demo`."""

import sys
from pathlib import Path

from testbed.cli import options
from testbed.cli.command import PATH, command, option

SCENARIO = "scenarios/ecmp-against-spraying.yml"


@command("demo", codes=options.verdicts)
@option("--backend", default="emulation", help="emulation (a lab: needs root) or simulation (none, k = 1).")
@option("-o", "--results", type=PATH, help="Directory of results; default results/.")
@options.quiet
def demo(backend: str, results: Path | None, quiet: bool) -> None:
    """Bring up a rail-optimised fabric, run a scenario that comes with testbed, and name its report."""
    from testbed.api.shipped_files import shipped_directory
    from testbed.cli.scenarios.measuring import RunCommand
    from testbed.cli.scenarios.named_files import read_sweeps
    from testbed.cli.scenarios.run import is_simulation, run_all

    command = RunCommand(form=options.Format.TABLE, results=results, quiet=quiet, simulated=is_simulation(backend))
    sys.exit(run_all(read_sweeps([shipped_directory() / SCENARIO]), command))
