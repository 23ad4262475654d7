"""Asking FRR's shell whether it knows the commands of a configuration, without a daemon and without any effect.

Source: FRR user guide, chapter VTYSH (`--dryrun`); vtysh/vtysh.c (`vtysh_config_from_file`): each line that it refuses
is a line on standard error, `line 3: % Unknown command[12]:  neighbour ...`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

from testbed.base.errors import CapabilityError, DriverError
from testbed.base.programs import captured

VTYSH = "vtysh"
_TIMEOUT_S = 60.0
_COMPLAINT = re.compile(r"^line (\d+): (?:% )?([^\[\n]+)(?:\[\d+\])?", re.MULTILINE)
_KINDS = {"Unknown command": "FRR has no such command here", "Command incomplete": "the command is not complete"}


@dataclass(frozen=True, slots=True)
class Complaint:
    """A line that vtysh does not take, from 1, and why."""

    line: int
    message: str


def has_vtysh() -> bool:
    """Tell whether this machine has FRR's shell."""
    return shutil.which(VTYSH) is not None


def check_commands(text: str) -> list[Complaint]:
    """Return the lines of an integrated configuration that vtysh does not take.

    Raises `CapabilityError` where this machine has no vtysh, `DriverError` where that does not answer.
    """
    program = shutil.which(VTYSH)
    if program is None:
        raise CapabilityError(
            "a node's own configuration is checked by FRR's vtysh, which is not here",
            missing=VTYSH,
            hint="apt-get install frr",
        )
    with tempfile.NamedTemporaryFile("w", prefix="testbed-", suffix=".conf") as file:  # mode 0600: it may have secrets
        file.write(text)
        file.flush()
        try:
            answer = captured([program, "--dryrun", "-f", file.name], _TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DriverError(f"{program} does not check configurations: {error}", operation="check") from error
    complaints = parse_complaints(answer.stderr)
    if answer.returncode and not complaints:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise DriverError(
            f"{program} --dryrun ended with status {answer.returncode}" + (f": {said[-1]}" if said else ""),
            operation="check",
        )
    return complaints


def parse_complaints(text: str) -> list[Complaint]:
    """Read what vtysh prints about the lines of a file."""
    return [
        Complaint(int(number), _KINDS.get(kind.strip(), kind.strip().rstrip(".").lower()))
        for number, kind in _COMPLAINT.findall(text)
    ]
