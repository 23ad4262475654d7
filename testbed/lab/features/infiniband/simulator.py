"""ibsim: it holds the nodes, ports and tables of a subnet, and has a prompt by which links are cut and state is shown.

Its prompt is a named pipe, which it has open in both directions, so that it never ends; what it prints goes to a file
that is appended to, so that whoever asks next may empty it. One asks at a time, under a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.base.cleanup import closed_at_end, end_at_once, on_failure
from testbed.base.errors import DriverError
from testbed.base.linux.inotify import IN_MODIFY, DirectoryWatch
from testbed.base.linux.processes import has_ended, last_line
from testbed.lab.features.infiniband.configuration import PlannedSubnet, network_text, simulator_limits
from testbed.lab.features.infiniband.plane import Plane

PROMPT = "sim> "
ANSWER_TIMEOUT_S = 60.0
LONGEST_COMMAND = 126
"""ibsim reads lines of so many bytes."""
_NODE = re.compile(
    r'^(?P<kind>Switch|Hca|Ca|Router) (?P<ports>\d+) "(?P<identifier>[^"]+)"\s+nodeguid (?P<guid>[0-9a-f]+)'
)
_PORT = re.compile(r'^[0-9a-f]+\t\[(?P<number>\d+)\]\t(?:"(?P<peer>[^"]*)"\[(?P<peer_port>\d+)\])?(?P<rest>.*)$')
_ENTRY = re.compile(r"\[(\d+)\]([0-9A-F]+)")
_ATTACHED = re.compile(r"^Client (\d+): pid (\d+) connected", re.MULTILINE)
_TABLE = "#\tForwarding table"
_LID = re.compile(r"\blid (\d+)")
_MANAGER_LID = re.compile(r"\bsmlid (\d+)")
_STATE = re.compile(r"(\w+)/(\w+)\s*(?:#.*)?$")


@dataclass(slots=True, kw_only=True)
class SimulatedPort:
    """A port as ibsim has it. `state` is that of IBTA section 14.2.5.6: Down, Init, Armed or Active."""

    number: int
    peer: str
    peer_port: int
    state: str
    lid: int = 0
    manager_lid: int = 0


@dataclass(slots=True, kw_only=True)
class SimulatedNode:
    """A node as ibsim has it: its ports by number, and of a switch its forwarding table."""

    identifier: str
    guid: int
    is_switch: bool
    ports: dict[int, SimulatedPort] = field(default_factory=dict)
    table: bytearray = field(default_factory=bytearray)

    @property
    def lid(self) -> int:
        """The LID of an HCA's port, or of a switch's own port 0."""
        port = self.ports.get(0 if self.is_switch else 1)
        return 0 if port is None else port.lid


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulator:
    """The ibsim of a plane, running or not."""

    plane: Plane

    @property
    def _prompt(self) -> Path:
        return self.plane.directory / "prompt"

    @property
    def _output(self) -> Path:
        return self.plane.directory / "ibsim.out"

    @property
    def network(self) -> Path:
        """The file of the network that it was started from."""
        return self.plane.directory / "network"

    @property
    def log(self) -> Path:
        """The file of what it complains about."""
        return self.plane.directory / "ibsim.err"

    def start(self, subnet: PlannedSubnet, timeout_s: float = ANSWER_TIMEOUT_S) -> subprocess.Popen[bytes]:
        """Start it, and wait until it is ready. Raises `DriverError`."""
        try:
            self.network.write_text(network_text(subnet))
            self._prompt.unlink(missing_ok=True)
            os.mkfifo(self._prompt, 0o600)
            self._output.write_bytes(b"")
            with (
                closed_at_end(os.open(self._prompt, os.O_RDWR | os.O_CLOEXEC)) as prompt,
                self._output.open("ab") as output,
                self.log.open("ab") as log,
            ):
                command = ["ibsim", "-s", *simulator_limits(subnet), str(self.network)]
                process = self.plane.start(command, stdin=prompt, stdout=output, stderr=log, start_new_session=True)
        except OSError as error:
            raise DriverError(f"cannot start ibsim: {error}", operation="ibsim") from error
        with on_failure(end_at_once, process):
            self._await_ready(process, timeout_s)
        return process

    def _await_ready(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        with self._watched() as watch:
            deadline = time.monotonic() + timeout_s
            while not self._is_done():
                if process.poll() is not None:
                    why = last_line(self.log) or last_line(self._output) or f"status {process.returncode}"
                    raise DriverError(f"ibsim does not take the subnet: {why}", operation="ibsim")
                if time.monotonic() > deadline:
                    raise DriverError(f"ibsim is not ready after {timeout_s:g} s", operation="ibsim")
                watch.wait(0.2)
                list(watch.read())

    def ask(self, command: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Give it a command and return what it prints. Raises `DriverError` where it does not run or answer."""
        if len(command) > LONGEST_COMMAND or not command.isprintable():
            raise ValueError(f"no command of ibsim: {command!r}")
        with self._locked():
            try:
                descriptor = os.open(self._prompt, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                raise self._silence() from error
            with closed_at_end(descriptor), self._watched() as watch:
                os.truncate(self._output, 0)
                os.write(descriptor, f"{command}\n".encode())
                deadline = time.monotonic() + timeout_s
                while not self._is_done():
                    if time.monotonic() > deadline:
                        raise self._silence()
                    watch.wait(0.2)
                    list(watch.read())
                return self._said().removesuffix(PROMPT)

    def unlink(self, identifier: str, port: int) -> None:
        """Cut the link at a port. Raises `DriverError` where it has none, or none any more."""
        self._change(f'Unlink "{identifier}"[{port}]')

    def relink(self, identifier: str, port: int) -> None:
        """Join a link again that was cut. Raises `DriverError` where it is not cut."""
        self._change(f'ReLink "{identifier}"[{port}]')

    def _change(self, command: str) -> None:
        said = self.ask(command).strip()
        if said.startswith("#"):
            raise DriverError(f"ibsim refuses {command}: {said.removeprefix('#').strip()}", operation="ibsim")

    def forget_dead(self) -> None:
        """Detach programs that were killed: ibsim goes on leading to them what is for their HCAs. Raises
        `DriverError`."""
        for client, pid in parse_attached(self.ask("Attached")):
            if has_ended(pid):
                self.ask(f"X {client}")

    def dump(self) -> dict[str, SimulatedNode]:
        """Return all nodes with their ports and tables, by identifier. Raises `DriverError`."""
        said = self.ask("Dump")
        nodes = parse_dump(said)
        if f"dumped {len(nodes)} nodes" not in said:  # the answer to a command that was broken off before
            raise DriverError("ibsim has not told all nodes of the subnet", operation="ibsim", hint="ask again")
        return nodes

    def _is_done(self) -> bool:
        """Tell whether it has printed its prompt, with which every answer ends."""
        try:
            with self._output.open("rb") as stream:
                stream.seek(max(0, self._output.stat().st_size - len(PROMPT)))
                return stream.read() == PROMPT.encode()
        except OSError as error:
            raise self._silence() from error

    def _said(self) -> str:
        try:
            return self._output.read_text(errors="replace")
        except OSError as error:
            raise self._silence() from error

    def _silence(self) -> DriverError:
        return DriverError(
            "ibsim, which holds the subnet, does not answer",
            operation="ibsim",
            hint="`testbed check` says what does not run; `testbed apply --repair` starts the subnet anew",
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self.plane.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._silence() from error
        with closed_at_end(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _watched(self) -> Iterator[DirectoryWatch]:
        with closing(DirectoryWatch()) as watch:
            watch.add(self.plane.directory, IN_MODIFY)
            yield watch


def parse_attached(text: str) -> list[tuple[int, int]]:
    """Read what ibsim's command Attached prints: the number and the process id of each program that is attached."""
    return [(int(client), int(pid)) for client, pid in _ATTACHED.findall(text)]


def parse_dump(text: str) -> dict[str, SimulatedNode]:
    """Read what ibsim's command Dump prints: a block for each node, with its forwarding table and its ports."""
    nodes: dict[str, SimulatedNode] = {}
    node: SimulatedNode | None = None
    for line in text.splitlines():
        if (found := _NODE.match(line)) is not None:
            node = SimulatedNode(
                identifier=found["identifier"], guid=int(found["guid"], 16), is_switch=found["kind"] == "Switch"
            )
            nodes[node.identifier] = node
        elif node is None:
            continue
        elif line.startswith(_TABLE):
            entries = [(int(lid), int(port, 16)) for lid, port in _ENTRY.findall(line)]
            if entries:
                node.table.extend(b"\xff" * (entries[-1][0] + 1 - len(node.table)))
            for lid, port in entries:
                node.table[lid] = port
        elif (found := _PORT.match(line)) is not None:
            simulated = _port(found)
            node.ports[simulated.number] = simulated
    return nodes


def _port(found: re.Match[str]) -> SimulatedPort:
    rest = found["rest"]
    state, lid, manager = _STATE.search(rest), _LID.search(rest), _MANAGER_LID.search(rest)
    return SimulatedPort(
        number=int(found["number"]),
        peer=found["peer"] or "",
        peer_port=int(found["peer_port"] or 0),
        state="" if state is None else state[1],
        lid=0 if lid is None else int(lid[1]),
        manager_lid=0 if manager is None else int(manager[1]),
    )


def changed_links(nodes: Mapping[str, SimulatedNode], subnet: PlannedSubnet) -> list[int]:
    """Return which links of a subnet (by their index) are cut."""
    found = []
    for index, link in enumerate(subnet.links):
        node = nodes.get(subnet.nodes[link.a].identifier)
        port = None if node is None else node.ports.get(link.a_port)
        if port is None or not port.peer:
            found.append(index)
    return found


def reached_nodes(nodes: Mapping[str, SimulatedNode], begin: Iterable[str]) -> set[str]:
    """Return the nodes, by identifier, that links lead to from these, and these."""
    found = set(begin)
    left = list(found)
    while left:
        for port in nodes[left.pop()].ports.values():
            if port.peer in nodes and port.peer not in found:
                found.add(port.peer)
                left.append(port.peer)
    return found


def is_in_force(nodes: Mapping[str, SimulatedNode], subnet: PlannedSubnet, index: int, reached: Container[str]) -> bool:
    """Tell whether the manager has seen how a link (by its index) is: both ports are active, or no table of its
    switches leads into it where it is cut. Of nodes that are not `reached`, the manager's knowledge is none."""
    link = subnet.links[index]
    for name, number in ((link.a, link.a_port), (link.b, link.b_port)):
        identifier = subnet.nodes[name].identifier
        if identifier not in reached:
            continue
        node = nodes[identifier]
        port = node.ports.get(number)
        if port is None:
            return False
        if port.peer and port.state != "Active":
            return False
        if not port.peer and number in node.table:
            return False
    return True
