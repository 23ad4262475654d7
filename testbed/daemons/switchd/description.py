"""The description that a switch is started from: its ports, and their links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.protocols.scale_up.domain.link import LinkSettings, plane_links


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPort:
    """One end of a link. The Ethernet addresses are its own and that of the GPU's interface."""

    interface: str
    mac: bytes
    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchDescription:
    """A domain's switch. The port of a GPU in a plane is number plane * gpus + gpu, in order."""

    gpus: int
    planes: int
    link: LinkSettings
    ports: Sequence[SwitchPort]
    voq: bool = False
    """Virtual output queues: inputs have a queue for each output, and none is held up by another's first frame."""
    plane_rates_bps: Sequence[int] = ()
    """The rates of each plane's links, per direction; (): all have that of `link`."""
    quantum_ns: int = 50_000
    """The switch sleeps for so long after each round, below 1 s, where more than one frame comes in such a time: frames
    that come in together cost less."""

    def __post_init__(self) -> None:
        if len(self.ports) != self.gpus * self.planes:
            raise ValueError(f"{len(self.ports)} ports of {self.gpus} GPUs in {self.planes} planes")
        plane_links(self.link, self.planes, self.plane_rates_bps)
        if not 0 <= self.quantum_ns < 1_000_000_000:
            raise ValueError(f"quantum_ns {self.quantum_ns}: below 1 s")
