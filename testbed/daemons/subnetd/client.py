"""Starting the wires of a subnet, telling them of links and tables, and asking how they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.base.files import write_atomically
from testbed.daemons.kit import configuration
from testbed.daemons.kit.ready_daemon import ReadyDaemon
from testbed.daemons.subnetd.adapters import socket_name
from testbed.daemons.subnetd.description import WiresDescription
from testbed.daemons.subnetd.errors import WiresError, WiresMissing
from testbed.daemons.subnetd.listening import FrameCapture
from testbed.daemons.subnetd.process import DESCRIPTION_NAME, SOCKET_NAME, SUBNET_NAME
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import PortCounts
from testbed.protocols.infiniband.subnet import Subnet

_DAEMON = ReadyDaemon(
    module="testbed.daemons.subnetd",
    socket_name=SOCKET_NAME,
    log_name="wires.log",
    error=WiresError,
    missing=WiresMissing,
    name="the wires of the subnet",
    absent="no wires of the subnet answer",
    many=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WiresReading:
    """The counters of wires at a moment, `at_ns` by CLOCK_MONOTONIC."""

    at_ns: int
    engine: str
    """The routing engine whose tables are in force."""
    frames: int
    """Frames that were put on a link, anywhere."""
    stuck: int
    """Frames none of which can move any more: each waits for the buffer of another one."""
    still_ns: int
    """For how long they have been stuck."""
    lost: Mapping[str, int]
    """Frames that went nowhere, by the counter that has them."""
    late: Mapping[str, int]
    """The lateness of what the process has done since counters began anew: turns, their sum and the most, ns."""
    ports: Sequence[PortCounts]

    def since(self, before: WiresReading) -> WiresReading:
        """Return what was counted after `before`."""
        return replace(
            self,
            frames=self.frames - before.frames,
            lost={name: count - before.lost.get(name, 0) for name, count in self.lost.items()},
            ports=[now.since(then) for now, then in zip(self.ports, before.ports, strict=True)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetWires:
    """The wires of one subnet, by their run directory, which is their own. Methods raise `WiresError`, and
    `WiresMissing` where they do not run."""

    run_directory: Path

    def start(self, namespace: str, description: WiresDescription, subnet: Subnet) -> int:
        """Start them in a published namespace and wait until HCAs can be opened; their process id comes back."""
        binding.build()  # here, where someone can be told that there is no compiler
        self.run_directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        configuration.write(self.run_directory / DESCRIPTION_NAME, description)
        self._write(subnet)
        return _DAEMON.start(self.run_directory, namespace)

    def _write(self, subnet: Subnet) -> None:
        write_atomically(self.run_directory / SUBNET_NAME, subnet.to_json(), durable=False)

    def status(self) -> dict[str, Any]:
        """Return what they say of themselves: time scale, tables, what was lost, and what each HCA has counted."""
        return self._ask("status")

    def is_running(self) -> bool:
        """Tell whether they answer."""
        try:
            self.status()
        except WiresError:
            return False
        return True

    def stop(self) -> None:
        """End them and wait for their end. Fine where there are none."""
        _DAEMON.stop(self.run_directory)

    def set_links(self, node: str, ports: Sequence[int], *, up: bool) -> None:
        """Take the links at ports of a node down, with what is on them, or bring them up; all at once."""
        self._ask("set_links", node=node, ports=list(ports), up=up)

    def set_leak(self, node: str, port: int, vl: int, share: float) -> None:
        """Let what a port sends on a VL lack a share of its credits; 0: none any more."""
        self._ask("set_leak", node=node, port=port, vl=vl, share=share)

    def deadlock(self) -> tuple[Sequence[str], int]:
        """Return the lanes that wait for each other in a circle, none where there is none, and for how many ns nothing
        has moved."""
        told = self._ask("deadlock")
        return told["lanes"], told["still_ns"]

    def capture(self, node: str, port: int) -> FrameCapture:
        """Listen to the frames at a port from now on."""
        return FrameCapture(self.run_directory, node, port)

    def set_tables(self, subnet: Subnet) -> None:
        """Put the tables of a subnet in force."""
        self._write(subnet)
        self._ask("tables")

    def counters(self, *, anew: bool = False) -> WiresReading:
        """Return what all ports have counted; with `anew` peaks are those from now on."""
        told = self._ask("counters", anew=anew)
        ports = [
            PortCounts(
                node=one["node"], port=one["port"], counters=one["counters"], lanes=dict(enumerate(one["lanes"]))
            )
            for one in told.pop("ports")
        ]
        return WiresReading(**told, ports=ports)

    def subnet(self) -> Subnet:
        """Return the subnet whose tables they were told last. Raises `WiresMissing`."""
        try:
            return Subnet.from_json((self.run_directory / SUBNET_NAME).read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WiresMissing(
                f"no subnet was told to the wires: {error}", hint=_DAEMON.log(self.run_directory)
            ) from error

    def adapter(self, hca: str) -> Path:
        """Return the socket of an HCA, which a program may open (`testbed.endpoints.infiniband`)."""
        return self.run_directory / socket_name(hca)

    def _ask(self, command: str, **fields: Any) -> dict[str, Any]:
        return _DAEMON.ask(self.run_directory, command, **fields)
