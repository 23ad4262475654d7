"""The verb `doctor`."""

import os
import sys

from testbed.base.errors import ExitCode
from testbed.cli import options
from testbed.cli.command import command, option


@command("doctor", codes={0: "labs can be deployed here", 1: "no lab can be deployed here"})
@option("--refresh", is_flag=True, help="Probe again what was probed since the last boot.")
@option("--install-line", is_flag=True, help="Print the command that installs what labs lack here, or nothing.")
@options.format_option
def doctor(refresh: bool, install_line: bool, format: options.Format) -> None:
    """Say what this machine has and lacks, which mechanism each feature will use, and how to get what is missing."""
    if install_line:
        _print_install_line()
        return
    from testbed.cli.machine.doctor_report import print_machine
    from testbed.lab.core.deploy.packet_costs import PacketCosts
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.drivers.probing.doctor import probe_machine

    report = probe_machine(keep=os.geteuid() == 0, refresh=refresh)
    print_machine(report, format, PacketCosts(StateDirectory()).all())
    sys.exit(ExitCode.PASS if report.can_deploy else ExitCode.FAIL)


def _print_install_line() -> None:
    """Print the line for a shell. Raises `CapabilityError` where packages are missing and there is no apt."""
    from importlib.util import find_spec

    from testbed.base.errors import CapabilityError
    from testbed.base.installation.debian import install_line
    from testbed.base.installation.errors import InstallationError
    from testbed.base.installation.packages import Level

    # Python's headers are there to compile modules, which takes mypyc; a wheel was compiled when it was built.
    without = () if find_spec("mypyc") else ("python3-dev",)
    try:
        line = install_line(Level.LABS, without=without)
    except InstallationError as error:
        raise CapabilityError(str(error), missing="packages", hint="; ".join(error.advice)) from error
    if line:
        print(line)
