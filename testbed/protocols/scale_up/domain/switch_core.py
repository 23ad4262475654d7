"""The switch of a domain in memory: frames go in and come out, in whatever time its caller says it is."""

from __future__ import annotations

import ctypes
from typing import Any

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.link import LinkErrors, LinkSettings


class SwitchCore:
    """The ports of all planes: that of a GPU in a plane is plane * gpus + gpu. Times are in ns."""

    def __init__(
        self, native: Any, link: LinkSettings, links: Any, *, gpus: int, planes: int, voq: bool = False, now: int = 0
    ) -> None:
        """`links` is an array of `LinkConfig`, one for each port. Raises `UsageError` for what is out of range."""
        self.native = native
        self.gpus, self.planes, self.vcs = gpus, planes, link.vcs
        ports = gpus * planes
        config = binding.SwitchConfig(
            gpus=gpus, planes=planes, voq=voq, frames=link.pool_frames(ports) + 64, frame_bytes=link.frame_bytes
        )
        self.handle = native.switch_new(config, links, now)
        if not self.handle:
            raise UsageError("the switch's settings are out of range")
        self._frame = ctypes.create_string_buffer(link.frame_bytes)

    def close(self) -> None:
        self.native.switch_free(self.handle)
        self.handle = 0

    def receive(self, port: int, data: bytes, now: int) -> None:
        """A frame has come in. Raises `BufferError` where all memory is in use."""
        if not self.native.switch_put(self.handle, port, data, len(data), now):
            raise BufferError("no frame is free")

    def work(self, now: int) -> list[tuple[int, bytes]]:
        """Do what is due; the frames that go out now, with their ports."""
        self.native.switch_work(self.handle, now)
        sent: list[tuple[int, bytes]] = []
        for port in range(self.gpus * self.planes):
            while length := self.native.switch_get(self.handle, port, self._frame, len(self._frame), now):
                sent.append((port, self._frame.raw[:length]))
        return sent

    def set_errors(self, port: int, errors: LinkErrors, now: int) -> None:
        """Set the errors of the wire of a port from now on, in place of those before."""
        if not self.native.switch_set_errors(self.handle, port, errors.native(), now):
            raise UsageError(f"there is no port {port}, or a share is none")

    def set_peer(self, gpu: int, there: bool, now: int) -> None:
        """The process of a GPU's end has died; or somebody new is there, who will greet."""
        self.native.switch_set_peer(self.handle, gpu, there, now)

    def next_timer(self) -> int:
        """When there is something to do though nothing comes in."""
        return int(self.native.switch_next_timer(self.handle))

    def held(self, port: int, vc: int) -> int:
        """Credits that are in use in an input's buffer."""
        return int(self.native.switch_held(self.handle, port, vc))

    def counters(self) -> list[dict[str, Any]]:
        """By port: of its link, and under `vcs` of each VC."""
        return [
            {
                "gpu": port % self.gpus,
                "plane": port // self.gpus,
                **binding.as_dict(self.native.switch_link_counters(self.handle, port).contents),
                **binding.retry_counters(
                    self.native.switch_retry_sender(self.handle, port),
                    self.native.switch_retry_receiver(self.handle, port),
                ),
                "vcs": [
                    binding.as_dict(self.native.switch_vc_counters(self.handle, port, vc).contents)
                    for vc in range(self.vcs)
                ],
            }
            for port in range(self.gpus * self.planes)
        ]

    @property
    def frames(self) -> int:
        """The frames that it has switched."""
        return int(self.native.switch_frames(self.handle))

    def forget_peaks(self) -> None:
        """Have `times`, and the depths of buffers, say nothing of what was until now."""
        self.native.switch_forget_peaks(self.handle)

    def times(self) -> dict[str, dict[str, int]]:
        """Return times of frames, ns: `pass` from the last bit in to the hand-over, `lateness` from when it was due."""
        found: dict[str, dict[str, int]] = {}
        for name, function in (("pass", self.native.switch_passes), ("lateness", self.native.switch_lateness)):
            steps = function(self.handle)
            found[name] = {
                "count": int(steps.contents.count),
                "p50_ns": int(self.native.histogram_quantile(steps, 0.5)),
                "p99_ns": int(self.native.histogram_quantile(steps, 0.99)),
                "p999_ns": int(self.native.histogram_quantile(steps, 0.999)),
                "max_ns": int(steps.contents.max_ns),
            }
        return found
