"""`python -m testbed.daemons.subnetd --run-directory DIR`: the wires of an InfiniBand subnet."""

from __future__ import annotations

from testbed.daemons.kit.ready_daemon import serve_ready
from testbed.daemons.subnetd.process import WiresProcess

PROCESS_NAME = "subnet-wires"
"""As `ps` shows it."""


def main() -> None:
    serve_ready("testbed.daemons.subnetd", __doc__, PROCESS_NAME, WiresProcess)


if __name__ == "__main__":
    main()
