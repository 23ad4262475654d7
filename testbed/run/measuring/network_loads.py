"""Loads of each network of the lab, and each tenant of the topology in it, during a run: bytes, use of ports, queues,
losses, marks and pauses.

A tenant is counted at the links to its NICs, whose ports are its alone. Links between switches are everybody's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.core.model.telemetry import DropCause
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.record.samples import Channel, NetworkLoad, TenantLoad
from testbed.run.measuring.observation import PORT_INTERVAL_NS, Observation
from testbed.run.placed.lab import LiveLab

if TYPE_CHECKING:
    from testbed.lab.observe.sampler import Samples
    from testbed.lab.observe.telemetry import Snapshot

QUEUE, DEVICE = "queue", "device"
"""Causes of losses that no queue of the data path counted: the queue of a port without QoS, or the interface."""
_NONE = PortCounters()


def network_loads(lab: LiveLab, seen: Observation, channels: Sequence[Channel]) -> list[NetworkLoad]:
    """Return what every network of `lab` that was watched carried meanwhile, in their order."""
    payload = _payload(lab.plan, channels)
    numbers = lab.plan.port_numbers
    rates = _PortRates.of(seen.port_samples)
    guarded = None if seen.guarded is None else _guarded(lab, seen.guarded)
    found = []
    for network in lab.model.network_names:
        if seen.networks is not None and network not in seen.networks:
            continue
        ports = [port for port in lab.plan.ports if port.network == network]
        switching = switching_nodes(lab.model, network)
        sent = {place(port): seen.sent.get((port.node, port.name), _NONE).tx_bytes for port in ports}
        use = {place(port): _share(sent[place(port)], port.rate_bps, seen.traffic_s) for port in ports}
        busiest = max(use, key=lambda name: use[name], default="")
        queued = [numbers[place(port)] for port in ports if place(port) in numbers]
        queues = _Queues.of(lab.plan, seen.growth, queued)
        capacity = {numbers[place(port)]: port.rate_bps for port in ports if place(port) in numbers}
        found.append(
            NetworkLoad(
                name=network,
                carrier="" if lab.model.carrier_of(network) == network else lab.model.carrier_of(network),
                ports=len(ports),
                sent_bytes=sum(sent.values()),
                entered_bytes=sum(sent[place(port)] for port in ports if port.node not in switching),
                delivered_bytes=sum(
                    sent[place(port)]
                    for port in ports
                    if port.node in switching and port.peer.partition(":")[0] not in switching
                ),
                utilisation=_share(sum(sent.values()), sum(port.rate_bps for port in ports), seen.traffic_s),
                peak_utilisation=rates.peak(capacity),
                busiest_port=busiest if use.get(busiest) else "",
                busiest_utilisation=use.get(busiest, 0.0),
                busiest_peak_utilisation=rates.peak(
                    {number: capacity[number] for number in queued if number == numbers.get(busiest)}
                ),
                queue_max_bytes=queues.deepest_bytes if queues else None,
                queue_port=queues.deepest_port if queues else "",
                queue_class=queues.deepest_class if queues else "",
                drops=dict((queues.drops if queues else Counter()) + _kernel_drops(seen, ports)),
                ce_packets=queues.ce_packets if queues else None,
                pause_frames=queues.pause_frames if queues else None,
                paused_s=queues.paused_s if queues else None,
                payload_bytes=payload.get(network, {}),
                guarded=None if guarded is None else _summed(guarded, network),
                tenants=_tenant_loads(lab, seen, network, payload.get(network, {}), guarded),
            )
        )
    return found


def place(port: PortPlan) -> str:
    """A port as "node:interface"."""
    return f"{port.node}:{port.name}"


def _share(sent_bytes: int, rate_bps: int, elapsed_s: float) -> float:
    """The share that was sent of all that could be."""
    return 8 * sent_bytes / (rate_bps * elapsed_s) if rate_bps and elapsed_s > 0 else 0.0


def switching_nodes(model: Lab, network: str) -> frozenset[str]:
    """The nodes that pass a network's packets on. A switch of a data network is an end of the one of management."""
    carrier = model.carrier_of(network)
    kinds = (NodeKind.SWITCH, NodeKind.BRIDGE)
    return frozenset(node.name for node in model.nodes if node.kind in kinds and node.network == carrier)


_Guarded = Mapping[tuple[str, str], Counter[str]]
"""Packets by network and tenant ("": none), and by which guard stopped them."""


def _guarded(lab: LiveLab, stopped: Mapping[tuple[str, str, str], int]) -> _Guarded:
    """Packets that were stopped at ports and at VRFs. The port of a policy is its tenant and a wire to another one."""
    ports = {(port.node, port.name): port for port in lab.plan.ports}
    tenants = tenants_of_ports(lab.plan)
    networks = {node.name: node.network for node in lab.model.nodes}
    found: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (node, name, guard), packets in stopped.items():
        port = ports.get((node, name))
        if port is not None:
            network, tenant = port.network, tenants.get(place(port), "")
        else:
            tenant = name.partition(":")[0]
            network = tenant if tenant in lab.plan.carriers else networks[node]
        if packets:
            found[network, tenant][guard] += packets
    return found


def _summed(guarded: _Guarded, network: str) -> dict[str, int]:
    return dict(sum((stopped for (name, _), stopped in guarded.items() if name == network), Counter[str]()))


def tenants_of_ports(plan: LabPlan) -> dict[str, str]:
    """Return the tenant of each port at either end of a link to a tenant's NIC, or to its router, by "node:interface".
    A NIC that is a link group has a tenant at its switches' ports alone."""
    ends = {place(port): port for port in plan.ports}
    found = {}
    for name, port in ends.items():
        other = ends.get(port.peer)
        if tenant := port.tenant or (other.tenant if other is not None else ""):
            found[name] = tenant
    return found


def _tenant_loads(
    lab: LiveLab, seen: Observation, network: str, payload: Mapping[str, int], guarded: _Guarded | None
) -> list[TenantLoad]:
    """Return the load of each tenant that has NICs in a network, and of all NICs in none; nothing without tenants."""
    overlay = lab.model.overlay
    if overlay is None or network in lab.plan.carriers:
        return []
    switching, tenants = switching_nodes(lab.model, network), tenants_of_ports(lab.plan)
    names = [*(tenant.name for tenant in overlay.tenants if not tenant.network), ""]
    edge: dict[str, list[PortPlan]] = {name: [] for name in names}
    for port in lab.plan.ports:
        inner = port.node in switching and port.peer.partition(":")[0] in switching
        if port.network == network and not inner:
            edge[tenants.get(place(port), "")].append(port)
    if not any(ports for tenant, ports in edge.items() if tenant):
        return []
    found = []
    for tenant, ports in edge.items():
        stopped = None if guarded is None else dict(guarded.get((network, tenant), {}))
        if ports:
            found.append(_tenant_load(lab, seen, tenant, ports, switching, payload.get(tenant, 0), stopped))
    return found


def _tenant_load(
    lab: LiveLab,
    seen: Observation,
    tenant: str,
    ports: Sequence[PortPlan],
    switching: frozenset[str],
    payload: int,
    stopped: dict[str, int] | None,
) -> TenantLoad:
    sent = {place(port): seen.sent.get((port.node, port.name), _NONE) for port in ports}
    use = {place(port): _share(sent[place(port)].tx_bytes, port.rate_bps, seen.traffic_s) for port in ports}
    busiest = max(use, key=lambda name: use[name])
    numbers = lab.plan.port_numbers
    queues = _Queues.of(lab.plan, seen.growth, [numbers[name] for name in sent if name in numbers])
    entered = [sent[place(port)] for port in ports if port.node not in switching]
    delivered = [sent[place(port)] for port in ports if port.node in switching]
    total = sum(counters.tx_bytes for counters in sent.values())
    return TenantLoad(
        name=tenant,
        ports=len(ports),
        entered_bytes=sum(counters.tx_bytes for counters in entered),
        entered_frames=sum(counters.tx_packets for counters in entered),
        delivered_bytes=sum(counters.tx_bytes for counters in delivered),
        delivered_frames=sum(counters.tx_packets for counters in delivered),
        utilisation=_share(total, sum(port.rate_bps for port in ports), seen.traffic_s),
        busiest_port=busiest if use[busiest] else "",
        busiest_utilisation=use[busiest],
        queue_max_bytes=queues.deepest_bytes if queues else None,
        queue_port=queues.deepest_port if queues else "",
        queue_class=queues.deepest_class if queues else "",
        drops=dict((queues.drops if queues else Counter()) + _kernel_drops(seen, ports)),
        guarded=stopped,
        payload_bytes=payload,
    )


def _payload(plan: LabPlan, channels: Sequence[Channel]) -> dict[str, dict[str, int]]:
    """Return the bytes that the channels' receivers got, by network and tenant. A carried network is a tenant of its
    carrier by itself, and its NICs are in none."""
    nics = {place(nic): nic for host in plan.hosts for nic in host.nics}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for channel in channels:
        nic = nics.get(str(channel.destination)) or nics.get(str(channel.source))
        if nic is not None:
            found[nic.network]["" if nic.network in plan.carriers else nic.tenant] += channel.received_bytes
    return {network: dict(sorted(by_tenant.items())) for network, by_tenant in found.items()}


def _kernel_drops(seen: Observation, ports: Sequence[PortPlan]) -> Counter[str]:
    """Return the packets lost at queues of ports without QoS and at interfaces."""
    keys = [(port.node, port.name) for port in ports]
    lost = {
        QUEUE: sum(seen.dropped.get(key, 0) for key in keys),
        DEVICE: sum(seen.sent.get(key, _NONE).tx_dropped for key in keys),
    }
    return Counter({cause: packets for cause, packets in lost.items() if packets})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queues:
    """The queues of a network's ports together."""

    deepest_bytes: int
    deepest_port: str
    deepest_class: str
    drops: Counter[str]
    ce_packets: int
    pause_frames: int
    paused_s: float

    @classmethod
    def of(cls, plan: LabPlan, growth: Snapshot | None, ports: Sequence[int]) -> _Queues | None:
        """None where no port of the network has queues of the data path."""
        if growth is None or not ports:
            return None
        from testbed.lab.observe.port_table import tabulate_ports
        from testbed.lab.observe.telemetry import QUEUE_DROPS

        table = tabulate_ports(plan)
        queues, ingress, pauses = growth.queues[ports], growth.ingress[ports], growth.pauses[ports]
        deepest = queues["max_bytes"]
        port, priority = divmod(int(deepest.argmax()), deepest.shape[1])
        lost = {cause.value: int(queues[f"{name}_packets"].sum()) for cause, name in QUEUE_DROPS.items()}
        lost |= {
            DropCause.WIRE.value: int(ingress["lost_packets"].sum()),
            DropCause.CAP.value: int(ingress["policed_packets"].sum()),
        }
        found = bool(deepest[port, priority])
        return cls(
            deepest_bytes=int(deepest[port, priority]),
            deepest_port=table.place(ports[port]) if found else "",
            deepest_class=table.class_name(ports[port], priority) if found else "",
            drops=Counter({cause: packets for cause, packets in lost.items() if packets}),
            ce_packets=int(queues["ce_packets"].sum()),
            pause_frames=int(pauses["xoff_sent"].sum()),
            paused_s=round(int(pauses["paused_ns"].sum()) / 1e9, 6),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PortRates:
    """The bytes that each port sent in each window between two samples, by the port's number."""

    seconds: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    sent: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Samples | None) -> _PortRates:
        """Nothing where ports were not sampled from the begin to the end. Windows that are cut short (the last one, and
        those before a late sample) go with the one before."""
        if samples is None or not samples.complete or len(samples) < 2:
            return cls()
        kept = [0]
        for index in range(1, len(samples)):
            if samples.times_ns[index] - samples.times_ns[kept[-1]] >= PORT_INTERVAL_NS / 2:
                kept.append(index)
        if len(kept) < 2:
            kept = [0, len(samples) - 1]
        else:
            kept[-1] = len(samples) - 1
        sent: dict[int, NDArray[np.float64]] = {}
        column = samples.columns["queues.out_bytes"]
        for index, (port, _) in enumerate(samples.queues):
            grown = np.diff(column[kept, index].astype(np.float64))
            sent[port] = sent[port] + grown if port in sent else grown
        return cls(seconds=np.diff(samples.times_ns[kept]) / 1e9, sent=sent)

    def peak(self, rate_bps: dict[int, int]) -> float | None:
        """The highest share that ports with these rates, by number, sent in a window of all that they could; None
        where none of them was sampled."""
        known = [port for port in rate_bps if port in self.sent]
        capacity = sum(rate_bps[port] for port in known)
        if not capacity:
            return None
        sent = np.sum([self.sent[port] for port in known], axis=0)
        return float((8 * sent / (self.seconds * capacity)).max())
