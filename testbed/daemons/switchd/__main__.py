"""`python -m testbed.daemons.switchd --run-directory DIR`: the switch of a scale-up domain."""

from __future__ import annotations

from testbed.daemons.kit.ready_daemon import serve_ready
from testbed.daemons.switchd.process import SwitchProcess

PROCESS_NAME = "domain-switch"
"""As `ps` shows it."""


def main() -> None:
    serve_ready("testbed.daemons.switchd", __doc__, PROCESS_NAME, SwitchProcess)


if __name__ == "__main__":
    main()
