"""A domain in virtual time: its switch and the ends of its GPUs in one process, without sockets and without a clock.

The same C as on sockets decides everything (`virtual_loop.h`); the caller says what time it is. So a simulator has the
domain that an emulated lab has, frame for frame, and the same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Gpu, Kind
from testbed.protocols.scale_up.domain.link import LinkErrors, LinkSettings
from testbed.protocols.scale_up.domain.memory import BufferMemory
from testbed.protocols.scale_up.domain.switch_core import SwitchCore
from testbed.protocols.scale_up.frames import encode_gone

NEVER = (1 << 64) - 1
SWITCH_PATIENCE = 5
"""So many times longer than a GPU's end a switch waits before it takes silence for a link that is down, as the switch's
process does."""


class VirtualEndpoint(Endpoint):
    """A GPU's end in a virtual domain, which serves it."""

    def __init__(
        self,
        native: Any,
        gpu: Gpu,
        *,
        clock_ns: Callable[[], int],
        draw: Callable[[int], int],
        touched: Callable[[], None],
    ) -> None:
        """`draw` gives a number below another one, for keys and epochs; `touched` is called when there may be something
        to do at once. Raises `UsageError`."""
        self.clock_ns = clock_ns
        self.draw = draw
        self._touched = touched
        super().__init__(native, gpu)

    def cancel(self) -> None:
        """Give up all operations."""
        super().cancel()
        self._touched()

    def _begin(
        self, kind: Kind, peer: int, remote: int, memory: BufferMemory, operands: Any = None, vc: int | None = None
    ) -> int:
        handle = super()._begin(kind, peer, remote, memory, operands, vc)
        self._touched()
        return handle

    def _open(self) -> None:
        self._begin_end()

    def close(self) -> None:
        """Give everything back."""
        if self.handle:
            self.native.endpoint_free(self.handle)
        self.handle = 0
        self._kept.clear()
        self._exported.clear()


class VirtualDomain:
    """The switch of a domain, and those of its GPUs' ends that are there.

    `links` are those of each plane; times are ns. `run` does what is due, and is to be called again at the time that it
    returns; whoever changes anything at a later time calls it before, up to that time.
    """

    def __init__(
        self,
        library: Path,
        links: Sequence[LinkSettings],
        *,
        gpus: int,
        voq: bool,
        clock_ns: Callable[[], int],
        draw: Callable[[int], int],
        touched: Callable[[], None],
    ) -> None:
        """`clock_ns` never says 0, which is no time to the ends of links; `touched` is called when something may be
        due."""
        self.gpus, self.planes = gpus, len(links)
        self.errors: dict[tuple[int, int], LinkErrors] = {}
        """The errors of links, by GPU and plane (from 0), of those that have had any."""
        self._native = binding.load(library)
        self._links = tuple(links)
        self._voq = voq
        self._clock_ns = clock_ns
        self._draw = draw
        self._touched = touched
        self._ends: list[VirtualEndpoint] = []
        self._loop = self._native.virtual_loop_new(gpus, self.planes)
        if not self._loop:
            raise MemoryError("no memory for a scale-up domain")
        self.core: SwitchCore | None = None
        """The switch; None: it has died."""
        self.start_switch()

    def start_switch(self) -> None:
        """Let another switch take the place of the one that has died, with its links as they are declared."""
        ports = [self._links[number // self.gpus] for number in range(self.gpus * self.planes)]
        configs = (binding.LinkConfig * len(ports))(
            *(link.native(bytes(6), bytes(6), epoch=1 + self._draw(255)) for link in ports)
        )
        for end in configs:
            end.silence_ns *= SWITCH_PATIENCE
        self.errors.clear()
        self.core = SwitchCore(
            self._native,
            max(self._links, key=lambda link: link.rate_bps),
            configs,
            gpus=self.gpus,
            planes=self.planes,
            voq=self._voq,
            now=self._clock_ns(),
        )
        self._native.virtual_loop_set_switch(self._loop, self.core.handle)
        self._touched()

    def kill_switch(self) -> None:
        """End the switch as nobody would: what it held is lost, and all ends are told that there is no signal."""
        if self.core is None:
            return
        self._native.virtual_loop_set_switch(self._loop, None)
        self.core.close()
        self.core = None
        for end in self._ends:
            for plane, (own, peer) in enumerate(end.settings.addresses):
                frame = encode_gone(own, peer, self._clock_ns())
                self._native.endpoint_put(end.handle, plane, frame, len(frame), self._clock_ns())
        self._touched()

    def open(self, gpu: Gpu) -> VirtualEndpoint:
        """Open the end of a GPU. Raises `UsageError` where it is open already, or settings are out of range."""
        if any(end.gpu == gpu.gpu for end in self._ends):
            raise UsageError(f"GPU {gpu.gpu} has an end already")
        end = VirtualEndpoint(self._native, gpu, clock_ns=self._clock_ns, draw=self._draw, touched=self._touched)
        self._ends.append(end)
        self._native.virtual_loop_set_endpoint(self._loop, gpu.gpu, end.handle)
        self._touched()
        return end

    def shut(self, end: VirtualEndpoint) -> None:
        """Close the end of a GPU, and let the switch know."""
        self._ends.remove(end)
        self._native.virtual_loop_set_endpoint(self._loop, end.gpu, None)
        end.close()
        if self.core is not None:
            self.core.set_peer(end.gpu, False, self._clock_ns())
            self._touched()

    def set_errors(self, gpu: int, plane: int, errors: LinkErrors) -> None:
        """Set what goes wrong on a link (plane from 0) from now on. Raises `UsageError`."""
        self.errors[gpu, plane] = errors
        if self.core is not None:
            self.core.set_errors(plane * self.gpus + gpu, errors, self._clock_ns())
            self._touched()

    def run(self, now: int, until: int) -> int:
        """Do what is due from `now` up to `until`, but not beyond a time at which an end has something to be collected.

        Return that time, or when the next thing is due; `NEVER` where nothing is.
        """
        return int(self._native.virtual_loop_run(self._loop, now, until))

    @property
    def lost_frames(self) -> int:
        """Frames that found no memory, or nobody: a switch that has died, an end that is closed."""
        return int(self._native.virtual_loop_lost(self._loop))

    def close(self) -> None:
        """Give everything back."""
        for end in list(self._ends):
            self._ends.remove(end)
            end.close()
        if self.core is not None:
            self.core.close()
        if self._loop:
            self._native.virtual_loop_free(self._loop)
        self._loop = None
