"""The verb `demo`."""

import shlex
import shutil
import sys
from pathlib import Path

from testbed.cli import options
from testbed.cli.command import PATH, command, option

SCENARIO = "scenarios/ecmp-against-spraying.yml"


@command("demo", codes=options.verdicts)
@option("--backend", default="emulation", help="emulation (a lab: needs root) or simulation (none, k = 1).")
@option("-o", "--results", type=PATH, help="Directory of results; default results/.")
@options.settings
@options.quiet
def demo(backend: str, results: Path | None, set: tuple[str, ...], quiet: bool) -> None:
    """Bring up a rail-optimised fabric, run a scenario that comes with testbed, and name its report."""
    from testbed.api.shipped_files import shipped_directory
    from testbed.cli.output import console
    from testbed.cli.scenarios.measuring import RunCommand
    from testbed.cli.scenarios.named_files import read_sweeps
    from testbed.cli.scenarios.run import is_simulation, run_all

    command = RunCommand(form=options.Format.TABLE, results=results, quiet=quiet, simulated=is_simulation(backend))
    measured: list[Path] = []
    try:
        code = run_all(read_sweeps([shipped_directory() / SCENARIO], set), command, measured.append)
    finally:
        for directory in measured:
            line = f"{_program()} console {shlex.quote(str(directory))}"
            console().print(f"play it back in a browser: {line}", highlight=False, markup=False, soft_wrap=True)
    sys.exit(code)


def _program() -> str:
    """Return how this program is called here: by its name where it is installed, else by the `lab` of a checkout."""
    from testbed.base.files import CHECKOUT

    if shutil.which("testbed"):
        return "testbed"
    here = Path.cwd()
    return "./lab" if here == CHECKOUT else shlex.quote(str(CHECKOUT / "lab"))
