"""A target that this host is and the kernel serves.

The kernel tells nobody of commands. So transfers have ended here before they begin, hosts tell when they arrive, and
what was written is checked on the medium when nothing moves any more, so that the check takes nobody's time.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from testbed.base.cleanup import on_failure
from testbed.base.program_errors import TrafficError
from testbed.endpoints.storage.kernel_target import KernelTarget, KernelTargetConfig
from testbed.endpoints.storage.media import MediaConfig
from testbed.endpoints.storage.pattern import Pattern
from testbed.endpoints.worker.nvme.settings import BLOCK_BYTES, STEP_BYTES, whole_blocks
from testbed.endpoints.worker.program import Step


class KernelTargetEnd:
    """It listens in the namespace of the calling thread, and holds what hosts are to read, until it is closed."""

    def __init__(
        self,
        name: str,
        nqn: str,
        listen: Sequence[tuple[str, int]],
        media: MediaConfig,
        pattern: Pattern,
        steps: Sequence[Step],
    ) -> None:
        """`name` is the host's, and `steps` are those whose bytes it takes or gives. Raises `OSError`."""
        self.verified_bytes = 0
        self._name = name
        self._pattern = pattern
        self._written = [step for step in steps if not step.pulled]
        self._target = KernelTarget(
            KernelTargetConfig(
                nqn=nqn,
                addresses=tuple(listen),
                size=(1 + max((step.number for step in steps), default=0)) * STEP_BYTES,
                block=BLOCK_BYTES,
                nguid=uuid.uuid5(uuid.NAMESPACE_URL, nqn).bytes,
                media=media,
            )
        )
        with on_failure(self.close):
            for step in steps:
                if step.pulled and step.restores is None:
                    self._target.put(pattern, step.number * STEP_BYTES, whole_blocks(step.size_bytes))

    def check(self) -> None:
        """Read back what hosts have written. Raises `TrafficError` where it is not what was sent."""
        self.verified_bytes = 0
        for step in self._written:
            length = whole_blocks(step.size_bytes)
            try:
                wrong = self._target.wrong_bytes(self._pattern, step.number * STEP_BYTES, length)
            except OSError as error:
                raise TrafficError(f"{self._name} cannot be read back: {error}") from error
            if wrong:
                raise TrafficError(f"step {step.number}: {wrong} bytes on {self._name} are not those that were sent")
            self.verified_bytes += step.size_bytes

    def close(self) -> None:
        """Remove what the kernel serves. What it does not let go is removed by the next run, and by `destroy`."""
        with suppress(OSError):
            self._target.close()
