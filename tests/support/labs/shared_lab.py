"""A lab that the tests of a file share, and that one of them may break without failing the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import SwitchPlan

PATIENCE_S = 10.0


def speaker(lab: RunningLab, node: str) -> SwitchPlan:
    """Return the routing of a switch, or of a host that speaks BGP."""
    return next(item for item in lab.plan.speakers if item.node == node)


class SharedLab:
    """Deployed when it is first asked for, and deployed anew where it does not become whole again."""

    def __init__(self, sandbox: Any, model: Any, whole: Callable[[RunningLab], bool], **options: Any) -> None:
        """`options` are those of `Sandbox.deploy`."""
        self._sandbox = sandbox
        self._model = model
        self._whole = whole
        self._options = options
        self._lab: RunningLab | None = None

    def get(self) -> RunningLab:
        """The lab, whole. Raises as `deploy_lab`."""
        if self._lab is None or not self._becomes_whole(self._lab):
            self._lab = self._sandbox.deploy(self._model, reconfigure=True, **self._options).lab
        assert self._lab is not None
        return self._lab

    def _becomes_whole(self, lab: RunningLab) -> bool:
        end = time.monotonic() + PATIENCE_S
        while not self._is_whole(lab):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _is_whole(self, lab: RunningLab) -> bool:
        try:
            return all(node.state == "running" for node in lab.status()) and self._whole(lab)
        except (TestbedError, OSError):  # a daemon may not answer
            return False
