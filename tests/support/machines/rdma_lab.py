"""The lab `rdma` in the lab VM, and perftest between its hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab_vm import LabVm

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])
TESTBED = ".venv/bin/testbed"
TOPOLOGY = "tests/integration/vm/two-switches-rdma.yml"
DEPLOY = (TESTBED, "deploy", "-q", "-t", TOPOLOGY)
PATIENT = 22
"""Queue pairs wait 17 s for an acknowledgement, so that what is sent again was lost, and not late on a busy machine."""


class RdmaLab:
    """The lab of two-switches-rdma.yml, deployed in the machine."""

    def __init__(self, machine: LabVm) -> None:
        self.machine = machine
        machine.check(*DEPLOY)

    def run(self, test: str, **settings: object) -> dict[str, Any]:
        settings = {"qp_timeout": PATIENT} | settings
        words = [f"{key}={value}" for key, value in settings.items()]
        answer: dict[str, Any] = json.loads(
            self.machine.check(".venv/bin/python", f"{HERE}/guest_rdma.py", test, *words)
        )
        return answer
