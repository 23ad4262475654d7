"""The password of a lab's BGP sessions (RFC 2385): made by its deploy, kept for root alone, and gone with the lab.

It is in no model, plan or record: those say that there is one. FRR's configurations have it, and are FRR's alone.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from testbed.lab.core.deploy.records.journal import state_error
from testbed.lab.core.plan.operations import LabPlan

FILE_NAME = "bgp-password"
_BYTES = 32


def bgp_password(plan: LabPlan, directory: Path) -> str:
    """Return the password kept in the state directory of a lab, made now where there is none; "" where none is wanted.

    Raises `StateError`.
    """
    if not any(switch.password for switch in plan.switches):
        return ""
    path = directory / FILE_NAME
    try:
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:  # noqa: PTH123
                file.write(secrets.token_hex(_BYTES))
        except FileExistsError:
            pass
        return path.read_text()
    except OSError as error:
        raise state_error(path, error) from error
