"""The verb `doctor`."""

import os
import sys

from testbed.base.errors import ExitCode
from testbed.cli import options
from testbed.cli.command import command, option


@command("doctor", codes={0: "labs can be deployed here", 1: "no lab can be deployed here"})
@option("--refresh", is_flag=True, help="Probe again what was probed since the last boot.")
@options.format_option
def doctor(refresh: bool, format: options.Format) -> None:
    """Say what this machine has and lacks, which mechanism each feature will use, and how to get what is missing."""
    from testbed.cli.machine.doctor_report import print_machine
    from testbed.lab.core.deploy.packet_costs import PacketCosts
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.drivers.probing.doctor import probe_machine

    report = probe_machine(keep=os.geteuid() == 0, refresh=refresh)
    print_machine(report, format, PacketCosts(StateDirectory()).all())
    sys.exit(ExitCode.PASS if report.can_deploy else ExitCode.FAIL)
