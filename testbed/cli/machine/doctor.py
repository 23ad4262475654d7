"""The verb `doctor`."""

import os
import sys

from testbed.cli import options
from testbed.cli.command import command, option


@command("doctor")
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
    sys.exit(0 if report.can_deploy else 1)
