"""A network of hosts and switches under one clock: built by a topology, run to an end, counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from testbed.protocols.simulation.errors import ConfigurationError, Deadlock
from testbed.protocols.simulation.events import Actor, Ended, Events
from testbed.protocols.simulation.faults import Impairments
from testbed.protocols.simulation.frame import WIRE_OVERHEAD_BYTES, Frame, flow_of
from testbed.protocols.simulation.host import Endpoint, Host
from testbed.protocols.simulation.link import Line, LinkSettings
from testbed.protocols.simulation.port import Port, PortSettings, PortStatistics

if TYPE_CHECKING:
    from mypy_extensions import i64

MASK: Final = (1 << 64) - 1


class Switch(Actor):
    """Forwards by destination; over several ports by a hash of source, destination, entropy and its own seed (ECMP)."""

    __slots__ = ("forwarded", "name", "routes", "seed")

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.routes: list[tuple[Port, ...]] = []
        """By the number of the destination host."""
        self.forwarded = 0

    def act(self, now: i64, frame: Frame | None) -> None:
        assert frame is not None
        self.forwarded += 1
        ports = self.routes[frame.destination]
        if len(ports) == 1:
            ports[0].offer(now, frame)
        elif ports:
            ports[self.choose(frame.flow, len(ports))].offer(now, frame)
        else:
            raise ConfigurationError(f"{self.name} has no route to host {frame.destination}")

    def choose(self, flow: int, ports: int) -> int:
        """The finaliser of splitmix64 (Steele, Lea, Flood 2014), so that neighbouring entropies spread evenly."""
        value = ((flow ^ self.seed) * 0x9E3779B97F4A7C15) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return ((value ^ (value >> 31)) * ports) >> 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatistics:
    """Datagrams since the start.

    sent + duplicated = delivered + refused + unroutable + lost + blackholed + dropped + in_flight. `in_flight` is
    counted on the lines and in the queues, not derived from the others.
    """

    sent: int
    delivered: int
    refused: int
    """Arrived at a dead host."""
    unroutable: int
    lost: int
    """By impairments."""
    blackholed: int
    """Sent on a line that was down."""
    dropped: int
    """By ports."""
    in_flight: int
    duplicated: int
    corrupted: int
    reordered: int
    marked: int
    trimmed: int
    hops: int
    """Frames that were put on a line."""
    events: int


class Network:
    """Hosts by address, switches by name, lines and ports by `from->to`.

    Deterministic for a seed: every line, port and switch has a random number generator of its own, seeded with the seed
    and its name, so that an impairment here leaves the draws there as they were.
    """

    def __init__(self, endpoints: Sequence[Endpoint], *, seed: int = 0) -> None:
        self.seed = seed
        self.events = Events()
        self.hosts: dict[str, Host] = {}
        self.switches: dict[str, Switch] = {}
        self.lines: dict[str, Line] = {}
        self.ports: dict[str, Port] = {}
        numbers = {endpoint.address: number for number, endpoint in enumerate(endpoints)}
        if len(numbers) != len(endpoints):
            raise ConfigurationError("two endpoints have the same address")
        addresses = list(numbers)
        for number, endpoint in enumerate(endpoints):
            self.hosts[endpoint.address] = Host(number, endpoint, self.events, numbers, addresses)

    # Building

    def add_switch(self, name: str) -> Switch:
        if name in self.switches or name in self.hosts:
            raise ConfigurationError(f"there are two nodes named {name}")
        switch = Switch(name, self._random(name).getrandbits(64))
        switch.routes = [() for _ in self.hosts]
        self.switches[name] = switch
        return switch

    def add_line(self, source: str, target: str, link: LinkSettings, port: PortSettings | None = None) -> Line:
        """One direction from a host or switch to another; `port` is what a switch puts in front of it."""
        name = f"{source}->{target}"
        if name in self.lines:
            raise ConfigurationError(f"there are two lines {name}")
        line = Line(name, link, self.events, self._sink(target), self._random(name))
        if source in self.hosts:
            if self.hosts[source].line is not None:
                raise ConfigurationError(f"{source} has two ways out")
            self.hosts[source].line = line
        elif port is None:
            raise ConfigurationError(f"{name} leaves a switch and has no PortSettings")
        else:
            random = self._random(f"{name} ecn")
            self.ports[name] = Port(line, port, self.events, random, last_hop=target in self.hosts)
        self.lines[name] = line
        return line

    def add_route(self, switch: str, destination: str, next_hops: Sequence[str]) -> None:
        """The ports of `switch` towards the host `destination`; several are ECMP."""
        ports = tuple(self.ports[f"{switch}->{next_hop}"] for next_hop in next_hops)
        self.switches[switch].routes[self.hosts[destination].number] = ports

    def _sink(self, target: str) -> Actor:
        if target in self.hosts:
            return self.hosts[target]
        if target in self.switches:
            return self.switches[target]
        raise ConfigurationError(f"there is no node {target}")

    def _random(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")

    # Running

    @property
    def now(self) -> int:
        """ns since the start."""
        return self.events.now

    def run(self, until: int | None = None, stop: Callable[[], bool] | None = None) -> Ended:
        """Go on until `stop` is true, time `until` (ns, absolute) has passed, or nothing is scheduled any more.

        Every endpoint that is alive is asked for datagrams first. `stop` is asked whenever an endpoint or an action of
        `at` has acted. A timer that an endpoint has given up still passes as an event, so after `Ended.QUIET` the clock
        may show a time later than the last thing that happened.

        Raises `Deadlock` if nothing is scheduled and there is a `stop` that is not true; `Livelock` and `ContractError`
        for what an endpoint does wrong.
        """
        for host in self.hosts.values():
            if host.alive:
                host.wake()
        ended = self.events.run(until, stop)
        if ended is Ended.QUIET and stop is not None:
            if stop():
                return Ended.STOP
            hosts = self.hosts.values()
            alive = [host.address for host in hosts if host.alive]
            raise Deadlock(self.now, alive, [host.describe() for host in hosts])
        return ended

    def wake(self, endpoint: Endpoint | str) -> None:
        """The application has acted on `endpoint`, or the one at that address: ask it, before time passes."""
        self._host(endpoint if isinstance(endpoint, str) else endpoint.address).wake()

    def at(self, when: int, action: Callable[[int], None]) -> None:
        """`action(now)` at time `when` (ns): applications, faults, samples."""
        self.events.schedule(when, self._perform, action)

    def _perform(self, now: int, action: Callable[[int], None]) -> None:
        action(now)
        self.events.acted = True

    # Faults

    def set_up(self, names: str | Sequence[str], up: bool) -> None:
        """Lines down (a silent blackhole) or up from now on; with `at`, from a given time."""
        for line in self._lines(names):
            line.up = up

    def impair(self, names: str | Sequence[str], impairments: Impairments | None) -> None:
        """Other impairments, or none, on these lines from now on."""
        for line in self._lines(names):
            line.impair(impairments)

    def kill(self, address: str) -> None:
        """The host stops at once: it sends nothing, hears nothing, its timers do not fire."""
        self._host(address).kill()

    def restart(self, endpoint: Endpoint) -> None:
        """A new endpoint in the place of the one at its address, which may be alive."""
        self._host(endpoint.address).restart(endpoint)

    def _lines(self, names: str | Sequence[str]) -> list[Line]:
        wanted = [names] if isinstance(names, str) else names
        unknown = [name for name in wanted if name not in self.lines]
        if unknown:
            raise ConfigurationError(f"there is no line {', '.join(unknown)}")
        return [self.lines[name] for name in wanted]

    def _host(self, address: str) -> Host:
        if address not in self.hosts:
            raise ConfigurationError(f"there is no host {address}")
        return self.hosts[address]

    # Looking

    def path(self, source: str, destination: str, entropy: int) -> list[Line]:
        """The lines a datagram takes, whether they are up or not."""
        origin, target = self._host(source), self._host(destination)
        flow = flow_of(origin.number, target.number, entropy)
        if origin.line is None:
            raise ConfigurationError(f"{source} has no way out")
        lines = [origin.line]
        while (node := lines[-1].name.split("->")[1]) != destination:
            ports = self.switches[node].routes[target.number]
            if not ports or len(lines) > len(self.lines):
                raise ConfigurationError(f"{node} has no route to {destination}, or one in a circle")
            lines.append(ports[self.switches[node].choose(flow, len(ports))].line)
        return lines

    def unloaded_delay_ns(self, source: str, destination: str, payload_bytes: int, entropy: int = 1) -> int:
        """One way, from the first bit sent to the last bit received, for so many bytes of UDP payload on idle lines."""
        wire_bytes = payload_bytes + WIRE_OVERHEAD_BYTES
        lines = self.path(source, destination, entropy)
        return sum(line.serialisation_ns(wire_bytes) + line.delay_ns for line in lines)

    def in_flight(self) -> int:
        """Frames on lines and in queues."""
        on_lines = sum(1 for _, frame in self.events.pending() if frame is not None)
        return on_lines + sum(port.queued_frames for port in self.ports.values())

    def port_statistics(self) -> Mapping[str, PortStatistics]:
        return {name: port.statistics(self.now) for name, port in self.ports.items()}

    def statistics(self) -> NetworkStatistics:
        hosts = self.hosts.values()
        ports = self.ports.values()
        lines = [line.statistics() for line in self.lines.values()]
        return NetworkStatistics(
            sent=sum(host.sent for host in hosts),
            delivered=sum(host.delivered for host in hosts),
            refused=sum(host.refused for host in hosts),
            unroutable=sum(host.unroutable for host in hosts),
            lost=sum(line.lost for line in lines),
            blackholed=sum(line.blackholed for line in lines),
            dropped=sum(port.dropped_low + port.dropped_medium + port.dropped_high for port in ports),
            in_flight=self.in_flight(),
            duplicated=sum(line.duplicated for line in lines),
            corrupted=sum(line.corrupted for line in lines),
            reordered=sum(line.reordered for line in lines),
            marked=sum(port.marked for port in ports),
            trimmed=sum(port.trimmed for port in ports),
            hops=sum(line.frames for line in lines),
            events=self.events.handled,
        )
