"""Changing links of a running lab: rate, delay, loss, corruption, silence, up and down; and undoing it.

A change acts on what a port sends. Rates are those of the port's HTB classes; loss, corruption and silence belong to
the wire and are fields of the data path's map at the port that receives; delay is netem there. So of a link between
two machines each has a part: the one that sends its rate and carrier, the one that receives what is lost. Each change
is recorded first (`linkstate`), and `reset` brings back exactly what the topology declares. Links that a feature adds,
such as those of scale-up domains, have names of their own, and the feature changes them.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from testbed.base.cleanup import Closing
from testbed.base.datapath.abi import PROBABILITY_ONE
from testbed.base.errors import TestbedError
from testbed.base.linux import rtnetlink, syscalls
from testbed.base.linux.counters import read_counters
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.links.recorded import (
    LinkState,
    WireChange,
    class_numbers,
    htb_class,
    lock_links,
    read_link_state,
    write_link_state,
)
from testbed.lab.core.deploy.links.wires import probability
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import StateError
from testbed.lab.core.deploy.records.kept_events import keep_event
from testbed.lab.core.deploy.records.state import NEXT_NAME, UnfinishedChange
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink.routes import route_message
from testbed.lab.core.feature import LinksBeside, features
from testbed.lab.core.model import DelayBy
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import delay_operation
from testbed.lab.core.plan.operations import AddRoute, DelayPort

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps

LARGEST_DELAY_NS = 60_000_000_000
LOSSES = ("loss", "loss_every", "corruption", "silent")
"""Changes of what is lost on the way: they are made at the port that receives, in the data path that `qos:` brings."""
LARGEST_BURST = 1_000_000
"""Mean frames that are lost one after the other, as in scenarios."""


class LinkRefused(TestbedError):
    """A change that this lab cannot make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """A change of a link; None leaves a thing as it is.

    At most one of `rate` (of the real fabric), `lab_rate` (as it is in the lab) and `rate_share` (of the declared
    rate). `delay` and `jitter` are in real-fabric time. `loss` and `corruption` are shares of packets, 0 to 1;
    `loss_every` N loses one in N, 0 none. `burst`: how many frames of a scale-up link are lost one after the other, on
    average. `silent`: carrier stays, every packet is lost.
    """

    rate: Rate | None = None
    lab_rate: Rate | None = None
    rate_share: float | None = None
    delay: Duration | None = None
    jitter: Duration | None = None
    loss: float | None = None
    loss_every: int | None = None
    burst: float | None = None
    corruption: float | None = None
    silent: bool | None = None
    up: bool | None = None

    def __post_init__(self) -> None:
        rates = [value for value in (self.rate, self.lab_rate, self.rate_share) if value is not None]
        if len(rates) > 1:
            raise ValueError("one rate only: of the fabric, of the lab, or a share")
        if rates and not rates[0]:
            raise ValueError("a rate of 0 is no rate: use silent, or take the link down")
        for name in ("loss", "corruption"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} is a share from 0 to 1, not {value:g}")
        if self.loss_every is not None and not 0 <= self.loss_every <= PROBABILITY_ONE:
            raise ValueError(f"loss_every is one packet in so many, not {self.loss_every}")
        if self.burst is not None and not 1 <= self.burst <= LARGEST_BURST:
            raise ValueError(f"burst is a mean number of frames, from 1 to {LARGEST_BURST:,}, not {self.burst:g}")
        if not any(getattr(self, item.name) is not None for item in fields(self)):
            raise ValueError("nothing to change")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireValues:
    """All values of one direction of a link, in lab units."""

    rate_bps: int
    delay_ns: int
    jitter_ns: int
    loss: float
    loss_every: int
    corruption: float
    silent: bool
    up: bool

    def changed(self, change: WireChange) -> WireValues:
        return replace(self, **{name: value for name, value in asdict(change).items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDirection:
    """One direction of a link as `link show` has it. `delay_by` is who realises the delay now.

    `actual` has what the kernel and the maps hold right now, for those values that can be read.
    """

    port: str
    peer: str
    delay_by: DelayBy
    declared: WireValues
    change: WireChange
    actual: Mapping[str, Any]

    @property
    def now(self) -> WireValues:
        return self.declared.changed(self.change)


def declared_values(port: PortPlan) -> WireValues:
    """Return what the topology says about the direction in which `port` sends."""
    return WireValues(
        rate_bps=port.rate_bps,
        delay_ns=port.delay_ns,
        jitter_ns=port.jitter_ns,
        loss=port.loss,
        loss_every=0,
        corruption=0.0,
        silent=False,
        up=True,
    )


class LinkControl(Closing):
    """Changes links of one lab; holds sockets and maps open, so that a timed fault takes well under a millisecond.

    Not for several threads at once. Other processes may change links meanwhile: each change reads the record anew.
    """

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._ports = {f"{port.node}:{port.name}": port for port in lab.plan.ports}
        self._numbers = self._lab.plan.port_numbers
        self._sockets: dict[str, RouteSocket] = {}
        self._maps: LabMaps | None = None
        self._auto: DelayBy | None = None
        self._beside = [links for feature in features() if (links := feature.links(lab)) is not None]
        self._guarded = {f"{node}:{name}" for node, name in lab.plan.guards}
        groups = lab.plan.link_groups
        self._grouped = frozenset[str]() if groups is None else groups.programmed
        self._far_ports: dict[str, PortPlan] | None = None

    def close(self) -> None:
        for item in self._sockets.values():
            item.close()
        self._sockets = {}
        if self._maps is not None:
            self._maps.close()
            self._maps = None

    def prepare(self, port: str) -> None:
        """Open now what changing `port`'s link will need, so that the first change is as fast as later ones."""
        if (links := self._links_beside(port)) is not None:
            links.prepare(port)
            return
        item = self._port(port)
        for end in (item, self._ports.get(item.peer)):
            if end is not None and self._is_here(end):
                self._route(end)
        if self._has_qos(item):
            self._open_maps()

    def _is_here(self, port: PortPlan) -> bool:
        return f"{port.node}:{port.name}" in self._ports

    def _has_qos(self, port: PortPlan) -> bool:
        """Tell whether the eBPF data path is on a port; of one elsewhere, on the port here that it sends to."""
        return (f"{port.node}:{port.name}" if self._is_here(port) else port.peer) in self._numbers

    def _links_beside(self, port: str) -> LinksBeside | None:
        """Return what changes the links that are meant; None where a port of a network is."""
        if port in self._ports:
            return None
        return next((links for links in self._beside if links.are_meant(port)), None)

    def is_beside(self, port: str) -> bool:
        """Tell whether links are meant that a feature adds, and not a port of a network; they may be misspelt."""
        return self._links_beside(port) is not None

    # ------------------------------------------------------------------ verbs

    def set(self, port: str, change: LinkChange, *, both: bool = False) -> None:
        """Change what `port` ("node:interface") sends, `both`: and what its peer does.

        Of links that a feature adds both directions change. Raises `NoSuchNode`, `NoSuchScaleUpLink`, `LinkRefused`,
        `SwitchError`, `CapabilityError`, `DriverError`, `UnfinishedChange`. A change that fails is taken back.
        """
        if (links := self._links_beside(port)) is not None:
            links.set(port, change)
            return
        directions = self._directions(port, both)
        with self._locked():
            state = read_link_state(self._lab.state_directory)
            for key in directions:
                before = state.changes.get(key, WireChange())
                after = self._resolve(self._port(key), change).over(before)
                self._move(key, state, before, self._without_declared(key, after))

    def reset(self, port: str, *, both: bool = True) -> None:
        """Bring `port`'s link, or the one direction in which it sends, back to what the topology declares; of a link
        whose other end is on another machine, this direction."""
        if (links := self._links_beside(port)) is not None:
            links.reset(port)
            return
        keys = self.ends(port) if both else self._directions(port, both)
        with self._locked():
            state = read_link_state(self._lab.state_directory)
            for key in keys:
                if key in state.changes:
                    self._move(key, state, state.changes[key], WireChange())

    def reset_all(self) -> list[str]:
        """Bring every changed link back; the ports whose directions were changed come back, and links of features."""
        with self._locked():
            state = read_link_state(self._lab.state_directory)
            changed = list(state.changes)
            for key in changed:
                if key in self._ports or key in self._senders_elsewhere():
                    self._move(key, state, state.changes[key], WireChange())
        return changed + [name for links in self._beside for name in links.reset_all()]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the links of the lab. Raises `UnfinishedChange` for a lab in the middle of a change, which has read what
        is changed of them."""
        with lock_links(self._lab.state_directory):
            if (self._lab.state_directory / NEXT_NAME).exists():
                raise UnfinishedChange(self._lab.name)
            yield

    def ends(self, port: str) -> list[str]:
        """Name the ends of the link at `port` that are on this machine, `port` first. Raises `NoSuchNode`."""
        peer = self._port(port).peer
        return [port, peer] if peer in self._ports else [port]

    def changed(self) -> list[str]:
        """The ports whose sending direction differs from the topology."""
        return list(read_link_state(self._lab.state_directory).changes)

    def show(self, port: str) -> LinkDirection:
        """The direction in which `port` sends: declared, changed, and as the kernel has it."""
        item = self._port(port)
        change = read_link_state(self._lab.state_directory).changes.get(port, WireChange())
        return LinkDirection(
            port=port,
            peer=item.peer,
            delay_by=self._delay_by(item, change),
            declared=declared_values(item),
            change=change,
            actual=self._actual(item),
        )

    def rate_bps(self, port: str) -> int | None:
        """Return the most that `port` sends, as the kernel has it; None: it is not shaped."""
        item = self._port(port)
        classes = wire.read_classes(self._route(item), item.ifindex)
        return 8 * classes[0].ceil if classes else None

    def port_now(self, port: PortPlan, change: WireChange | None) -> PortPlan:
        """The port as it is with `change`."""
        if change is None:
            return port
        values = declared_values(port).changed(change)
        return replace(
            port,
            rate_bps=values.rate_bps,
            delay_ns=values.delay_ns,
            jitter_ns=values.jitter_ns,
            delay_by=self._delay_by(port, change),
            loss=1.0 if values.silent else values.loss,
        )

    # ------------------------------------------------------------------ what to do

    def _port(self, port: str) -> PortPlan:
        if port not in self._ports and port in (elsewhere := self._senders_elsewhere()):
            return elsewhere[port]
        node, _, interface = port.partition(":")
        return self._lab.port(node, interface)

    def _senders_elsewhere(self) -> Mapping[str, PortPlan]:
        """The ports of other machines that send to ports of this one, by name."""
        if self._far_ports is None:
            peers = {port.peer for port in self._ports.values() if port.peer} - self._ports.keys()
            ports = self._lab.plan_everywhere.ports if self._lab.part is not None and peers else ()
            named = ((f"{port.node}:{port.name}", port) for port in ports)
            self._far_ports = {name: port for name, port in named if name in peers}
        return self._far_ports

    def _directions(self, port: str, both: bool) -> list[str]:
        item = self._port(port)
        return [port, self._far_name(item)] if both else [port]

    def _far_name(self, port: PortPlan) -> str:
        """The other end of a port's link. Raises `LinkRefused` where that is on another machine."""
        if port.peer not in self._ports:
            raise LinkRefused(
                f"{port.peer}, the other end of {port.node}:{port.name}, is on another machine",
                hint="of what this end sends, rate, down and up can be changed here, and what is lost there",
            )
        return port.peer

    def _far(self, port: PortPlan) -> PortPlan:
        return self._ports[self._far_name(port)]

    def _resolve(self, port: PortPlan, change: LinkChange) -> WireChange:
        """The change in lab units. Raises `LinkRefused` for what this lab cannot do."""
        if change.burst is not None:
            raise LinkRefused("losses in bursts are for links of scale-up domains", hint="loss alone, or loss_every")
        k = 1.0 if port.out_of_band else self._lab.record.k
        rate_bps: int | None = None
        if change.rate_share is not None:
            rate_bps = max(8, round(port.rate_bps * change.rate_share))
        elif change.rate is not None:
            rate_bps = max(8, change.rate.scaled(k).bps)
        elif change.lab_rate is not None:
            rate_bps = max(8, change.lab_rate.bps)
        if rate_bps is not None and rate_bps > port.rate_bps + 1:  # a share or a scaled rate is rounded
            raise LinkRefused(
                f"{port.node}:{port.name}: {Rate(rate_bps)} in the lab is more than the {Rate(port.rate_bps)} that its"
                " link is made for",
                hint="a link can be made slower: --rate 50%",
            )
        wanted = [name for name in LOSSES if getattr(change, name) is not None]
        if not self._is_here(port) and any(
            getattr(change, item.name) is not None for item in fields(change) if item.name not in LOSSES
        ):
            raise LinkRefused(
                f"{port.node}:{port.name} is on another machine, and this one makes what is lost behind it alone",
                hint="change the rest there",
            )
        if wanted or change.delay is not None or change.jitter is not None:
            self._far_name(port)  # such a change is made there, and refused before it is recorded
        if wanted and not self._has_qos(port):
            where = self._lab.name if not self._lab.model.policies else f"the network {port.network}"
            instead = "rate, down and up work without"
            if not port.out_of_band:
                instead = f"add `qos: {{preset: uec}}` to the topology and deploy again; {instead}"
            raise LinkRefused(
                f"{wanted[0].replace('_', ' ')} needs the eBPF data path, and {where} was deployed without it",
                hint=instead,
            )
        resolved = WireChange(
            rate_bps=rate_bps,
            delay_ns=None if change.delay is None else change.delay.scaled(k).ns,
            jitter_ns=None if change.jitter is None else change.jitter.scaled(k).ns,
            loss=change.loss,
            loss_every=change.loss_every,
            corruption=change.corruption,
            silent=change.silent,
            up=change.up,
        )
        for what, time_ns in (("delay", resolved.delay_ns), ("jitter", resolved.jitter_ns)):
            if time_ns is not None and time_ns > LARGEST_DELAY_NS:
                raise LinkRefused(
                    f"a {what} of {Duration(time_ns)} in lab time (k = {k:g}) is more than a wire can hold here",
                    hint=f"at most {Duration(LARGEST_DELAY_NS)} in lab time",
                )
        if port.peer in self._grouped and self._delay_by(port, resolved) is DelayBy.KERNEL:
            raise LinkRefused(
                f"what the kernel delays would come in at {port.peer} past the programs of its link group",
                hint="delay another link",
            )
        if port.peer in self._guarded and self._delay_by(port, resolved) is DelayBy.KERNEL:
            raise LinkRefused(
                f"what the kernel delays would come in at {port.peer} past the guards of the port",
                hint="deploy it with guards: off, or delay another link",
            )
        return resolved

    def _without_declared(self, key: str, change: WireChange) -> WireChange:
        """Only what really differs from the topology: setting the declared value is undoing the change."""
        declared = asdict(declared_values(self._port(key)))
        return WireChange(**{name: value for name, value in asdict(change).items() if value != declared[name]})

    def _move(self, key: str, state: LinkState, before: WireChange, after: WireChange) -> None:
        """Record, then do; on failure do and record the opposite."""
        if before == after:
            return
        port = self._port(key)
        old, new = (declared_values(port).changed(change) for change in (before, after))
        fresh = new.rate_bps != old.rate_bps and key not in state.classes
        if fresh:
            state.classes[key] = [class_numbers(item) for item in self._read_classes(port)]
        originals = [htb_class(item) for item in state.classes.get(key, [])]
        state.set(key, after)
        write_link_state(self._lab.state_directory, state)
        try:
            self._apply(key, old, new, originals, (before, after))
        except TestbedError:
            with contextlib.suppress(TestbedError):
                self._apply(key, new, old, originals, (after, before))
                state.set(key, before)
                if fresh:
                    del state.classes[key]
                write_link_state(self._lab.state_directory, state)
            raise
        if new.rate_bps == port.rate_bps and state.classes.pop(key, None) is not None:
            write_link_state(self._lab.state_directory, state)
        kind, detail = _told(old, new)
        keep_event(self._lab.state_directory, self._lab.name, port.node, kind, port.name, detail)

    def _read_classes(self, port: PortPlan) -> list[wire.HtbClass]:
        found = wire.read_classes(self._route(port), port.ifindex)
        if not found:
            raise LinkRefused(f"{port.node}:{port.name} is not shaped", hint="deploy --reconfigure brings it back")
        return found

    # ------------------------------------------------------------------ doing it

    def _apply(
        self,
        key: str,
        old: WireValues,
        new: WireValues,
        originals: Sequence[wire.HtbClass],
        changes: tuple[WireChange, WireChange],
    ) -> None:
        port = self._port(key)
        if new.rate_bps != old.rate_bps:
            batch = wire.change_rate(port.ifindex, originals, new.rate_bps, port.rate_bps)
            self._route(port).expect(batch, [f"rate of {key}"] * len(batch))
        if any(getattr(new, name) != getattr(old, name) for name in LOSSES):
            record = self._open_maps().ports[self._numbers[self._far_name(port)]]
            record["corruption"] = probability(new.corruption)
            record["loss_every"] = new.loss_every
            record["loss"] = PROBABILITY_ONE if new.silent else probability(new.loss)
        if (new.delay_ns, new.jitter_ns) != (old.delay_ns, old.jitter_ns):
            self._delay(key, changes[0], changes[1])
        if new.up != old.up:
            self._set_up(port, new.up)

    def _open_maps(self) -> LabMaps:
        if self._maps is None:
            self._maps = self._lab.maps(writable=True)
        return self._maps

    def _route(self, port: PortPlan) -> RouteSocket:
        """A netlink socket in the namespace that `port` lies in."""
        namespace = self._lab.namespace_of(port)
        found = self._sockets.get(namespace)
        if found is None:

            def open_socket() -> RouteSocket:
                enter_namespace(namespace)
                return RouteSocket()

            found = self._sockets[namespace] = syscalls.in_thread(open_socket)
        return found

    def _delay_by(self, port: PortPlan, change: WireChange) -> DelayBy:
        """Return who realises the delay of a direction: as planned, or, where none was planned, what `auto` means."""
        values = declared_values(port).changed(change)
        if not (values.delay_ns or values.jitter_ns):
            return DelayBy.IGNORE
        if port.delay_by is not DelayBy.IGNORE:
            return port.delay_by
        if self._auto is None:
            from testbed.lab.core.deploy.mechanisms import auto_delay

            self._auto = auto_delay(self._lab)
        return self._auto

    def _delay_operation(self, key: str, change: WireChange) -> DelayPort | None:
        """Return what delays a direction in the kernel, at the port that receives; None where nothing does."""
        port = self._ports[key]
        if self._delay_by(port, change) is not DelayBy.KERNEL:
            return None
        values = declared_values(port).changed(change)
        return delay_operation(
            self._far(port),
            self._numbers[self._far_name(port)],
            rate_bps=max(values.rate_bps, port.rate_bps),
            delay_ns=values.delay_ns,
            jitter_ns=values.jitter_ns,
            has_qos=self._has_qos(port),
        )

    def _delay(self, key: str, before: WireChange, after: WireChange) -> None:
        old, new = self._delay_operation(key, before), self._delay_operation(key, after)
        match old, new:
            case None, None:
                return  # the endpoints' own transports ask for the path's delay
            case None, DelayPort() as operation:
                batch = list(wire.delay_port(operation))
            case DelayPort() as operation, None:
                batch = list(wire.undelay_port(operation))
            case _, DelayPort() as operation:
                batch = [
                    wire.set_netem(
                        operation.ifb_ifindex,
                        operation.delay_ns,
                        operation.jitter_ns,
                        operation.limit_packets,
                        change=True,
                    )
                ]
        if new is None and not operation.clsact:
            self._open_maps().ports["delay_ifindex"][operation.port] = 0
        self._route(self._far(self._ports[key])).expect(batch, [f"delay of {key}"] * len(batch))
        if old is None and not operation.clsact:
            self._open_maps().ports["delay_ifindex"][operation.port] = operation.ifb_ifindex

    def _set_up(self, port: PortPlan, up: bool) -> None:
        route = self._route(port)
        key = f"{port.node}:{port.name}"
        route.expect([rtnetlink.set_link_state(port.ifindex, up)], [f"link {'up' if up else 'down'} {key}"])
        if not up:
            return
        # The kernel drops an interface's routes when it goes down, and brings back the connected ones alone.
        lost = [
            item
            for item in self._lab.plan.operations
            if isinstance(item, AddRoute) and item.node == port.node and item.ifindex == port.ifindex
        ]
        refused = route.submit([route_message(item) for item in lost])
        failures = [item for item in refused if item.errno != errno.EEXIST]
        if failures:
            raise rtnetlink.failure_error(failures, [f"{key}: route {item.destination}" for item in lost])

    def _actual(self, port: PortPlan) -> dict[str, Any]:
        actual: dict[str, Any] = {}
        if self._is_here(port):
            counters = read_counters(self._route(port)).get(port.name)
            actual["carrier"] = counters is not None and counters.up
            actual["rate_bps"] = self.rate_bps(f"{port.node}:{port.name}")
        if self._has_qos(port) and port.peer in self._ports:
            record = self._open_maps().ports[self._numbers[port.peer]]
            loss = int(record["loss"])
            actual["loss"] = loss / PROBABILITY_ONE
            actual["loss_every"] = int(record["loss_every"])
            actual["corruption"] = int(record["corruption"]) / PROBABILITY_ONE
            actual["silent"] = loss == PROBABILITY_ONE
        return actual


def _told(old: WireValues, new: WireValues) -> tuple[str, str]:
    """The kind of the event that a direction was changed, and what changed of it, in lab units."""
    if old.up != new.up:
        return ("link-up" if new.up else "link-down"), ""
    words = {name: value for name, value in asdict(new).items() if value != getattr(old, name)}
    return "link-set", ", ".join(f"{name} {value}" for name, value in words.items())


def set_link(lab: RunningLab, port: str, change: LinkChange, *, both: bool = False) -> None:
    """Change a link once; for many changes keep a `LinkControl`."""
    with LinkControl(lab) as control:
        control.set(port, change, both=both)


def ports_now(lab: RunningLab) -> tuple[PortPlan, ...]:
    """The lab's ports with the delays, rates and losses that they have now, changes included."""
    try:
        changes = read_link_state(lab.state_directory).changes
    except StateError:
        changes = {}
    if not changes:
        return lab.plan.ports
    with LinkControl(lab) as control:
        return tuple(control.port_now(port, changes.get(f"{port.node}:{port.name}")) for port in lab.plan.ports)
