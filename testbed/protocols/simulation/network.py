"""A network of NICs and switches under one clock: built link by link, run to an end, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Final

from testbed.base.datapath.abi import BalancingMode
from testbed.protocols.simulation.errors import ConfigurationError, Deadlock
from testbed.protocols.simulation.events import Actor, Ended, Events
from testbed.protocols.simulation.faults import Impairments
from testbed.protocols.simulation.frame import WIRE_OVERHEAD_BYTES
from testbed.protocols.simulation.link import Line, LinkSettings
from testbed.protocols.simulation.nic import Endpoint, NicHost, NicInput
from testbed.protocols.simulation.port import OutputPort
from testbed.protocols.simulation.seeded import SeededRandom
from testbed.protocols.simulation.settings import FabricPortSettings, SwitchSettings
from testbed.protocols.simulation.switch import STATIC, FabricSwitch, InputPort, PortArrivals

UET_PORT: Final = 4793
"""The UDP port of UET (UE Specification 1.0, section 3.5.3), which switches hash where nothing else is said."""


class FabricNetwork:
    """NICs by IPv4 address, switches by name, lines and ports by the name of the line, under one clock.

    `overhead_bytes` is what a datagram costs on the wire beside its payload; `host` is what NICs are made of, and
    `hosts` what those at some addresses are. `order` has the number by which switches pin each address to a path; by
    default that of the endpoint.
    Deterministic for a seed: every line, port and switch has a random number generator of its own, seeded with the seed
    and its name, so that an impairment here leaves the draws there as they were.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        seed: int = 0,
        overhead_bytes: int = WIRE_OVERHEAD_BYTES,
        destination_port: int = UET_PORT,
        host: type[NicHost] = NicHost,
        hosts: Mapping[str, type[NicHost]] | None = None,
        order: Mapping[str, int] | None = None,
    ) -> None:
        self.seed = seed
        self.events = Events()
        self.lines: dict[str, Line] = {}
        self.overhead_bytes = overhead_bytes
        self.destination_port = destination_port
        self.fabric_switches: dict[str, FabricSwitch] = {}
        self.outputs: dict[str, OutputPort] = {}
        """By the name of the line."""
        self.inputs: dict[str, InputPort] = {}
        """The ports of switches, by the name of the line that ends there."""
        numbers = {endpoint.address: number for number, endpoint in enumerate(endpoints)}
        if len(numbers) != len(endpoints):
            raise ConfigurationError("two endpoints have the same address")
        addresses = list(numbers)
        self._packed = [IPv4Address(address).packed for address in addresses]
        self._group_of = list(range(len(addresses)))
        """The number of the group of each NIC, whose members have the same routes."""
        self._members = [1] * len(addresses)
        """The number of NICs that each group has."""
        self._ways: dict[tuple[str, ...], tuple[OutputPort, ...]] = {}
        """The ports of lines, as switches have them: one tuple for all routes that are the same."""
        self._order = list(range(len(addresses))) if order is None else [order.get(address, 0) for address in addresses]
        self.nics: dict[str, NicHost] = {}
        self._nic_behind: dict[str, NicHost] = {}
        self._nic_inputs: dict[str, NicInput] = {}
        for number, endpoint in enumerate(endpoints):
            make = host if hosts is None else hosts.get(endpoint.address, host)
            nic = make(number, endpoint, self.events, numbers, addresses, overhead_bytes)
            nic.group_of = self._group_of
            self.nics[endpoint.address] = nic

    # --- building ----------------------------------------------------------------------------------------

    def share_routes(self, group_of: Mapping[str, Hashable]) -> None:
        """Have NICs of one group share their routes, as those behind one leaf do: a route to one of them is one to all.
        A switch that delivers to them has one to each. NICs that are not named are a group each.

        Without that, tables grow with switches times NICs. Raises `ConfigurationError` where there are switches.
        """
        if self.fabric_switches:
            raise ConfigurationError("groups of NICs come before the switches that have routes to them")
        numbers: dict[Hashable, int] = {}
        for address, nic in self.nics.items():
            group = group_of.get(address, (address,))
            self._group_of[nic.number] = numbers.setdefault(group, len(numbers))
        counted = Counter(self._group_of)
        self._members[:] = [counted[group] for group in range(len(numbers))]

    def add_fabric_switch(self, name: str, settings: SwitchSettings) -> FabricSwitch:
        if name in self.fabric_switches or name in self.nics:
            raise ConfigurationError(f"there are two nodes named {name}")
        random = SeededRandom(f"{self.seed} {name} flowlets")
        switch = FabricSwitch(name, settings, self._packed, self.destination_port, random, len(self._members))
        if settings.balancing is BalancingMode.STATIC:
            switch.pins = [number // settings.stride for number in self._order]
        self.fabric_switches[name] = switch
        return switch

    def connect(
        self,
        name: str,
        source: str,
        target: str,
        link: LinkSettings,
        *,
        out: FabricPortSettings,
        into: FabricPortSettings,
    ) -> OutputPort:
        """One direction of a link: from the port with the classes `out` to the one with the classes `into`."""
        if name in self.lines:
            raise ConfigurationError(f"there are two lines {name}")
        line = Line(name, link, self.events, self._input(name, target, into), SeededRandom(f"{self.seed} {name}"))
        switch = self.fabric_switches.get(source)
        buffer = None if switch is None else switch.buffer
        port = OutputPort(
            line,
            out,
            self.events,
            SeededRandom(f"{self.seed} {name} ecn"),
            buffer,
            overhead_bytes=self.overhead_bytes,
            last_hop=target in self.nics,
        )
        if switch is None:
            nic = self.nics.get(source)
            if nic is None:
                raise ConfigurationError(f"there is no node {source}")
            nic.add_port(port)
        self.lines[name] = line
        self.outputs[name] = port
        return port

    def obey(self, name: str, reaction_ns: int) -> None:
        """Have the port in front of line `name` obey the pauses that the line's end asks for, so long after it did."""
        found = self.inputs.get(name)
        if found is None:
            return
        port = self.outputs[name]
        for account in found.accounts:
            if account.xoff_bytes and any(queue.priority == account.priority for queue in port.queues):
                account.pauses(port, port.line.delay_ns + reaction_ns)

    def route(self, switch: str, destination: str, lines: Sequence[str]) -> None:
        """The lines out of `switch` towards the NIC at `destination` and its group; several are of equal cost.

        One that stands there several times has as many shares, but of a switch that pins destinations, which counts
        paths.
        """
        found, nic = self.fabric_switches[switch], self.nics[destination]
        key = tuple(dict.fromkeys(lines) if found.balancing == STATIC else lines)
        ports = self._ways.get(key)
        if ports is None:
            ports = self._ways[key] = tuple(self.outputs[name] for name in key)
        group = self._group_of[nic.number]
        if self._members[group] == 1:
            found.routes[group] = ports
        elif group in found.homes or any(self._nic_behind.get(name) is nic for name in lines):
            found.homes.add(group)
            found.routes[group] = ()
            found.delivered[nic.number] = ports
        else:
            found.routes[group] = ports

    def divert(self, switch: str, destination: str, lines: Sequence[str]) -> None:
        """Have `switch` send what is for the NIC at `destination` into these lines, whatever its routes say, as a
        static route to that address would; none of them ends it."""
        found, number = self.fabric_switches[switch], self.nics[destination].number
        if lines:
            found.diverted[number] = tuple(self.outputs[name] for name in lines)
        else:
            found.diverted.pop(number, None)

    def _input(self, name: str, target: str, settings: FabricPortSettings) -> Actor:
        nic = self.nics.get(target)
        if nic is not None:
            self._nic_behind[name] = nic
            if nic.arrivals is not None:
                found_behind = self._nic_inputs[name] = NicInput(nic, settings)
                return found_behind
            nic.arrivals = PortArrivals(settings)
            return nic
        if target not in self.fabric_switches:
            raise ConfigurationError(f"there is no node {target}")
        found = self.inputs[name] = InputPort(name, self.fabric_switches[target], settings, self.events)
        return found

    # --- running -----------------------------------------------------------------------------------------

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
        for nic in self.nics.values():
            if nic.alive:
                nic.wake()
        ended = self.events.run(until, stop)
        if ended is Ended.QUIET and stop is not None:
            if stop():
                return Ended.STOP
            nics = self.nics.values()
            alive = [nic.address for nic in nics if nic.alive]
            raise Deadlock(self.now, alive, [nic.describe() for nic in nics])
        return ended

    def at(self, when: int, action: Callable[[int], None]) -> None:
        """`action(now)` at time `when` (ns): applications, faults, samples."""
        self.events.schedule(when, self._perform, action)

    def _perform(self, now: int, action: Callable[[int], None]) -> None:
        action(now)
        self.events.acted = True

    def set_up(self, names: str | Sequence[str], up: bool) -> None:
        """Lines down (a silent blackhole) or up from now on; with `at`, from a given time."""
        for line in self._lines(names):
            line.up = up

    def impair(self, names: str | Sequence[str], impairments: Impairments | None) -> None:
        """Other impairments, or none, on these lines from now on."""
        for line in self._lines(names):
            line.impair(impairments)

    def _lines(self, names: str | Sequence[str]) -> list[Line]:
        wanted = [names] if isinstance(names, str) else names
        unknown = [name for name in wanted if name not in self.lines]
        if unknown:
            raise ConfigurationError(f"there is no line {', '.join(unknown)}")
        return [self.lines[name] for name in wanted]

    # --- looking -----------------------------------------------------------------------------------------

    def in_flight(self) -> int:
        """Packets on lines and in queues."""
        on_lines = sum(1 for _, frame in self.events.pending() if frame is not None)
        return on_lines + sum(port.waiting for port in self.outputs.values())

    def arrivals_at(self, line: str) -> PortArrivals | None:
        """Return what has come in by a line. Raises `KeyError` for one that there is not."""
        if line in self.inputs:
            return self.inputs[line].arrivals
        return self._nic_inputs[line].arrivals if line in self._nic_inputs else self._nic_behind[line].arrivals

    def accounted(self) -> int:
        """Datagrams of which it is known what became of them, or that are on their way."""
        of_lines = sum(line.lost_frames + line.blackholed for line in self.lines.values())
        dropped = sum(
            sum(queue.drops_packets) + queue.wred_packets for port in self.outputs.values() for queue in port.queues
        )
        of_nics = sum(nic.delivered + nic.refused + nic.unroutable + nic.tapped for nic in self.nics.values())
        no_route = sum(switch.no_route_packets for switch in self.fabric_switches.values())
        expired = sum(switch.expired_packets for switch in self.fabric_switches.values())
        return of_nics + of_lines + dropped + no_route + expired + self.in_flight()

    @property
    def hops(self) -> int:
        """Packets that were put on a line."""
        return sum(line.frames for line in self.lines.values())
