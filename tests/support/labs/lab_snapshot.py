"""All that a lab is, as the kernel, FRR and our own files tell it, so that two labs can be compared line by line.

A snapshot has nothing that differs from one deploy to the next of the same lab: no counters, times, process numbers,
numbers that the kernel gives away in the order of asking, and no numbers of ports in the data path, in whose place
stand the names of the ports.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed.base.datapath.abi import LINE_CLASS
from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.nftables import SUBSYSTEM, NetfilterSocket
from testbed.base.linux.processes import processes_in
from testbed.base.linux.rtnetlink import RouteSocket, attribute, attributes, fields
from testbed.base.names import namespace_name
from testbed.daemons.portd.attachment import DIRECTORY_NAME
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.running_config import read_configuration
from testbed.lab.core.drivers.netlink.netem import read_classes
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.infiniband.live import LiveSubnet

SAID_S = 30.0
"""The time that BGP may take to be quiet."""
QUIET_S = 0.3
"""BGP has nothing more to say when nothing came in this time."""
Snapshot = dict[str, str]
"""A text for each thing, by its path, such as "p1-s1-h1 address rail1 10.0.0.2/24"."""

_LINK_KEYS = (
    "ifindex",
    "flags",
    "mtu",
    "qdisc",
    "operstate",
    "txqlen",
    "address",
    "master",
    "link_index",
    "num_tx_queues",
    "gso_max_segs",
    "inet6_addr_gen_mode",
)
_UNSTABLE_DETAIL = re.compile(
    r"timer|(^|_)id$|^no$|designated|pending|topology_change|root_|_port$|_cost$|fdb_n_learned|age$|^state$"
)
"""Keys of a link's details that are times, numbers in the order of joining, or states of a protocol that is off."""
_ROUTE_KEYS = (
    *("type", "gateway", "via", "dev", "weight", "protocol", "scope", "prefsrc", "metric", "table"),
    *("nexthops", "flags"),
)
_UNSTABLE_SETTING = re.compile(
    r"stable_secret|random|fastopen_key|/flush$|conntrack|nf_log|netdev_rss_key|/neigh/|unix/|/mptcp/|vs/|"
    r"tcp_available|tcp_allowed|retrans_time|base_reachable_time"
)
_UNSTABLE_FILES = (".log", ".out", ".err", ".pid", ".vty", ".jsonl", ".events", ".lock")
"""The ends of names of files that say when something was, or who does it."""
_DRAWN = re.compile(r"\.svc/\.\w+/.")
"""Keys, certificates and passwords of services: those of a node that goes are kept for one that has its name later."""
_OF_SUBNET = re.compile(r"\.infiniband/(work|wires|pids|lock|prompt|reroute|sm-\w+/)")
"""Files that programs of a subnet write for themselves: the subnet is described by what its nodes hold."""
_DRAWN_KEY = re.compile(r"(?s)-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----|ssh-ed25519 \S+|password [0-9a-f]{64}\b")
"""A key, a certificate or a password of BGP, which is drawn anew for each lab."""
_PORT_FIELDS = (
    "ifindex",
    "flags",
    "balancing",
    "seed",
    "gap_ns",
    "loss",
    "corruption",
    "delay_ifindex",
    "loss_every",
    "cap_bps",
    "cap_burst_ns",
)


def snapshot(lab: RunningLab) -> Snapshot:
    """Return all that a lab is; nothing is to run through it meanwhile."""
    found: Snapshot = {}
    for place in sorted(lab.identities):
        found |= {f"{place} {path}": text for path, text in _of_place(lab, place)}
    for source in (_of_routing, _of_data_path, _of_pause_agent, _of_subnet, _of_files, _of_record, _of_processes):
        found |= dict(source(lab))
    return found


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return a line for each thing that only one of two snapshots has, or that they have otherwise: of longer texts
    what differs."""
    lines = []
    for path in sorted(one.keys() | other.keys()):
        found, meant = one.get(path, "(nothing)"), other.get(path, "(nothing)")
        if found == meant:
            continue
        if "\n" in found or "\n" in meant:
            changed = difflib.unified_diff(meant.splitlines(), found.splitlines(), n=0, lineterm="")
            lines.append(f"{path}: {' | '.join(line for line in changed if not line.startswith(('---', '+++', '@@')))}")
        else:
            lines.append(f"{path}: {found} instead of {meant}")
    return lines


def _of_place(lab: RunningLab, place: str) -> Iterator[tuple[str, str]]:
    """All that the kernel has in one network namespace."""
    namespace = namespace_name(lab.name, place)
    devices = []
    for link in _json("ip", "-n", namespace, "-d", "link", "show"):
        devices.append(link["ifname"])
        kept = {key: link[key] for key in _LINK_KEYS if key in link}
        if kept.get("operstate") == "UNKNOWN":  # UP, which the kernel may note a second later (net/core/link_watch.c)
            kept["operstate"] = "UP"
        yield f"link {link['ifname']}", _text(kept)
        yield f"link {link['ifname']} details", _text(_details(link.get("linkinfo", {})))
    for link in _json("ip", "-n", namespace, "address", "show"):
        for address in link.get("addr_info", ()):
            kept = {key: value for key, value in address.items() if not key.endswith("life_time")}
            yield f"address {link['ifname']} {address['local']}/{address['prefixlen']}", _text(kept)
    for family in ("-4", "-6"):
        for route in _json("ip", "-n", namespace, family, "-d", "route", "show", "table", "all"):
            kept = {key: route[key] for key in _ROUTE_KEYS if key in route}
            kept["flags"] = sorted(set(kept.get("flags", ())) - {"linkdown"})
            hops = [{key: hop[key] for key in _ROUTE_KEYS if key in hop} for hop in kept.pop("nexthops", ())]
            if len({hop.get("weight") for hop in hops}) == 1:  # FRR may keep what weighed them all alike
                hops = [hop | {"weight": 1} for hop in hops]
            kept["nexthops"] = sorted(map(_text, hops))
            where = f"{route.get('table', 'main')} {route.get('metric', '')} {route.get('type', '')}"
            yield f"route {family} {route['dst']} {where} {kept.get('dev', '')}", _text(kept)
        for rule in _json("ip", "-n", namespace, family, "rule", "show"):
            yield f"rule {family} {_text(rule)}", ""
    for neighbour in _json("ip", "-n", namespace, "neighbour", "show", "nud", "permanent"):
        if neighbour["dev"] == "br-lag" and "extern_learn" in neighbour:  # by our program, of what is sent
            continue
        yield f"neighbour {neighbour['dev']} {neighbour['dst']}", _text(neighbour)
    for qdisc in _json("tc", "-n", namespace, "qdisc", "show", "invisible"):
        qdisc.get("options", {}).pop("direct_packets_stat", None)  # counts what was sent before there were classes
        yield f"qdisc {qdisc['dev']} {qdisc['kind']} {qdisc['handle']} {qdisc.get('parent', 'root')}", _text(qdisc)
    yield from _filters(lab, namespace, devices)
    yield from in_namespace(namespace, _filters_of_netfilter).items()
    yield from in_namespace(namespace, _settings).items()
    yield from in_namespace(namespace, _classes).items()


def _details(info: Mapping[str, Any]) -> dict[str, Any]:
    """What the kind of a link says of it, and the kind of its master, without what is of the moment."""
    found: dict[str, Any] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            found[key] = {one: each for one, each in value.items() if not _UNSTABLE_DETAIL.search(one)}
        else:
            found[key] = value
    return found


def _filters(lab: RunningLab, namespace: str, devices: list[str]) -> Iterator[tuple[str, str]]:
    names = {f"1:{number:x}": port for port, number in lab.plan.port_numbers.items()}
    for device in devices:
        for parent in (("ingress",), ("egress",), ("parent", "1:")):
            for item in _json("tc", "-n", namespace, "filter", "show", "dev", device, *parent):
                options = dict(item.get("options", {}))
                for key in ("prog", "id", "jited", "tag"):
                    options.pop(key, None)
                if "flowid" in options:
                    options["flowid"] = names.get(options["flowid"], options["flowid"])
                _forget_actions(options)
                place = f"filter {device} {parent[-1]} {item.get('pref', '')} {item.get('kind', '')}"
                yield f"{place} {options.get('handle', options.get('fh', ''))}", _text(options)


def _forget_actions(options: dict[str, Any]) -> None:
    """Take the numbers away that the kernel gives to actions in the order of asking."""
    for action in options.get("actions", ()):
        for key in ("index", "ref", "bind", "installed", "last_used"):
            action.pop(key, None)


_GETCHAIN, _GETRULE, _GETSET, _GETSETELEM, _GETOBJ = 4, 7, 10, 13, 19
"""Messages of linux/netfilter/nf_tables.h that ask for all there is."""
_PRIORITY = 2
"""NFTA_HOOK_PRIORITY of linux/netfilter/nf_tables.h."""


def _filters_of_netfilter() -> dict[str, str]:
    """The tables of nftables of the namespace that this thread is in: rules in their order, and elements of sets.

    They are read by netlink, since `nft` need not be there; what an expression is told stays in the kernel's own words.
    """
    everything = struct.pack("!BBH", 0, 0, 0)
    found: dict[str, str] = {}
    with contextlib.closing(NetfilterSocket()) as item:

        def dump(kind: int, more: bytes = b"", family: int = 0) -> list[dict[int, bytes]]:
            request = struct.pack("!BBH", family, 0, 0) + more if family else everything + more
            answers = [bytes(body) for body in item.dump(SUBSYSTEM | kind, request)]
            return [{0: body[:1], **{key: bytes(value) for key, value in fields(body, 4).items()}} for body in answers]

        for chain in dump(_GETCHAIN):
            hook = fields(chain.get(4, b""))
            hook.pop(_PRIORITY, None)  # one that replaces another comes after it
            found[f"netfilter chain {_name(chain[1])} {_name(chain[3])}"] = str(hook)
        places: Counter[str] = Counter()
        for rule in dump(_GETRULE):
            place = f"{_name(rule[1])} {_name(rule[2])}"
            places[place] += 1
            found[f"netfilter rule {place} {places[place]:03}"] = rule.get(4, b"").hex()
        for one in dump(_GETSET):
            name = f"{_name(one[1])} {_name(one[2])}"
            found[f"netfilter set {name}"] = " ".join(one.get(key, b"").hex() for key in (3, 4, 5, 6, 7))
            wanted = attribute(1, one[1]) + attribute(2, one[2])
            elements = [
                bytes(element).hex()
                for body in dump(_GETSETELEM, wanted, one[0][0])
                for _, element in attributes(body.get(3, b""))
            ]
            found[f"netfilter elements {name}"] = " ".join(sorted(elements))
        for one in dump(_GETOBJ):
            found[f"netfilter object {_name(one[1])} {_name(one[2])}"] = one.get(3, b"").hex()
    return found


def _name(value: bytes) -> str:
    return value.rstrip(b"\0").decode()


def _settings() -> dict[str, str]:
    """All settings of the network namespace that this thread is in."""
    root = Path("/proc/sys/net")
    found = {}
    for path in root.rglob("*"):
        key = str(path.relative_to(root))
        if _UNSTABLE_SETTING.search(f"/{key}") or not path.is_file():
            continue
        if key.startswith("ipv6/conf/") and path.name != "disable_ipv6" and _has_no_ipv6(path.parent):
            continue  # an interface without IPv6 has what it came up with
        try:
            found[f"setting {key}"] = " ".join(path.read_text().split())
        except OSError:  # it can be written alone
            continue
    return found


def _has_no_ipv6(settings: Path) -> bool:
    return settings.name not in ("all", "default") and (settings / "disable_ipv6").read_text().strip() == "1"


def _classes() -> dict[str, str]:
    """The HTB classes of all interfaces of the network namespace that this thread is in.

    The line's turn among others, of which there are none, stays what it was at first (net/sched/sch_htb.c,
    htb_change_class).
    """
    route = RouteSocket()
    try:
        links = json.loads(_run("ip", "-j", "link", "show"))
        return {
            f"class {link['ifname']} {item.handle:x}": str(
                item if item.handle != LINE_CLASS else replace(item, quantum=0)
            )
            for link in links
            for item in read_classes(route, link["ifindex"])
        }
    finally:
        route.close()


def _of_routing(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """What the routing daemons run, and what they know; which of equal paths is the best one may be the oldest."""
    _await_all_said(lab)
    for speaker in lab.plan.speakers:
        node, directory = speaker.node, lab.processes_directory / speaker.node
        for daemon, lines in read_configuration(directory, lab.daemons[node]).items():
            context: list[str] = []
            for line in lines:
                depth = len(line) - len(line.lstrip())
                context = [*context[:depth], line.strip()]
                yield f"{node} runs {daemon} {' / '.join(context)}", ""
        for peer, said in _bgp(directory).get("peers", {}).items():
            yield f"{node} session {peer}", f"{said.get('state')} {said.get('remoteAs')} {said.get('pfxRcd')}"
        for prefix, paths in vty.ask_json(directory, "bgpd", "show bgp ipv4 unicast json").get("routes", {}).items():
            kept = [
                {
                    "valid": path.get("valid", False),
                    "used": bool(path.get("multipath") or path.get("bestpath")),
                    "path": path.get("path", ""),
                    "from": path.get("peerId", ""),
                }
                for path in paths
            ]
            yield f"{node} path {prefix}", " ".join(sorted(map(_text, kept)))
        if "bfdd" in lab.daemons[node]:
            for peer in vty.ask_json(directory, "bfdd", "show bfd peers json"):
                names = ("status", "receive-interval", "transmit-interval", "detect-multiplier")
                yield f"{node} bfd {peer.get('interface')}", _text({name: peer.get(name) for name in names})


def _await_all_said(lab: RunningLab) -> None:
    """Wait until each BGP speaker has told its peers all it knows, and knows no more than when it was asked before.

    A lab has converged when the kernel has its routes. Paths that no route takes may be on their way still.
    """
    known: object = None
    deadline = time.monotonic() + SAID_S
    while True:
        answers = [_bgp(lab.processes_directory / speaker.node) for speaker in lab.plan.speakers]
        peers = [peer for answer in answers for peer in answer.get("peers", {}).values()]
        said = [answer.get("tableVersion") for answer in answers], [(peer["pfxRcd"], peer["pfxSnt"]) for peer in peers]
        if said == known and not any(peer["inq"] or peer["outq"] for peer in peers):
            return
        assert time.monotonic() < deadline, f"BGP is not quiet: {known}, then {answers}"
        known = said
        time.sleep(QUIET_S)


def _bgp(directory: Path) -> dict[str, Any]:
    answer = vty.ask_json(directory, "bgpd", "show bgp ipv4 unicast summary json")
    return dict(answer.get("ipv4Unicast", answer))


def _of_data_path(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """What the eBPF programs are told of each port, and that nothing waits anywhere."""
    if lab.plan.tables is None:
        return
    maps = lab.maps()
    try:
        yield from describe_ports(maps, lab.plan)
        deadline = time.monotonic() + SAID_S
        while int(maps.by_port("queues")["bytes"].sum()) and time.monotonic() < deadline:
            time.sleep(0.01)  # a packet of BGP may be on its way
        yield "waiting in queues", str(int(maps.by_port("queues")["bytes"].sum()))
    finally:
        maps.close()


def describe_ports(maps: LabMaps, plan: LabPlan) -> Iterator[tuple[str, str]]:
    """Yield what the programs are told of each port of a plan with QoS: names stand where maps have numbers."""
    assert plan.tables is not None
    names = {number: port for port, number in plan.port_numbers.items()}
    owner = {index: buffer.node for index, buffer in enumerate(plan.tables.buffers)}
    ingress = maps.by_port("ingress")
    used = np.flatnonzero(maps.ports["ifindex"]).tolist()
    profiles = {int(index): str(maps.profiles[index].tolist()) for index in {*maps.ports["profile"][used].tolist()}}
    for number in used:
        record, account = maps.ports[number], ingress[number]
        buffer = int(record["buffer"])
        name = names.get(number, f"unknown port {number}")
        yield f"{name} port", _text({field: int(record[field]) for field in _PORT_FIELDS})
        yield f"{name} peer", names.get(int(record["peer"]), "nobody")
        yield f"{name} buffer", f"{owner.get(buffer)} {maps.buffers[buffer]['size_bytes']}"
        yield f"{name} profile", profiles[int(record["profile"])]
        kept = {field: account[field].tolist() for field in ("xoff_bytes", "xon_bytes", "limit_bytes")}
        yield f"{name} thresholds", _text(kept)
    for number, port in names.items():
        if number not in used:
            yield f"{port} port", "is not installed"


def _of_pause_agent(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """What the pause agent was told."""
    path = lab.processes_directory.parent / DIRECTORY_NAME / f"{lab.name}.json"
    if not path.exists():
        return
    names = {number: port for port, number in lab.plan.port_numbers.items()}
    for port in json.loads(path.read_text())["ports"]:
        number, peer = port.pop("number"), port.pop("peer")
        yield f"{names.get(number, f'unknown port {number}')} attachment", _text(port | {"peer": names.get(peer)})


def _of_subnet(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """What the nodes of an InfiniBand back end hold, and how its managers do."""
    if lab.model.infiniband is None:
        return
    live = LiveSubnet(lab)
    subnet = live.reader.read()
    for name, node in subnet.nodes.items():
        yield f"{name} subnet node", _text([node, subnet.lfts.get(name, b"").hex()])
    for name in ("links", "sls", "partitions", "engine", "sm", "vls", "sl2vl", "vl_low", "vl_high"):
        yield (
            f"subnet {name}",
            _text(sorted(value.items()) if isinstance(value := getattr(subnet, name), dict) else value),
        )
    for name, keys in live.reader.pkey_tables().items():
        yield f"{name} P_Keys", _text(sorted(keys or ()))
    for state in live.reader.managers():
        yield f"{state.hca} subnet manager", _text(state)
    if live.wires is not None:
        yield "subnet wires", _text([live.wires.status()["tables"], live.wires.status()["time_scale"]])


def _of_files(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """The files of daemons and of nodes, and those that other tools read."""
    for root in (lab.processes_directory, lab.directory):
        for path in sorted(root.rglob("*")):
            inner = path.relative_to(root)
            if inner.parts[0] in ("bpf", ".shm"):  # the data path is described by itself; what a program shared stays
                continue
            if _DRAWN.match(str(inner)) or _OF_SUBNET.match(str(inner)):
                continue
            if path.is_dir():
                yield f"file {root.name}/{inner}/", ""
            elif (
                path.is_file()
                and path.name != "log"
                and not path.name.startswith("imfile-state")  # how far a file was read
                and path.suffix not in _UNSTABLE_FILES
            ):
                yield f"file {root.name}/{inner}", _readable(path)


def _readable(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return "(not a text)"
    if path.suffix != ".json":
        return _DRAWN_KEY.sub("(a key)", text)
    said = json.loads(text, object_hook=_without_secret)
    return json.dumps(said, sort_keys=True, indent=1)


def _without_secret(said: dict[str, Any]) -> dict[str, Any]:
    """An object of a file without a key and a process number, which are others for each lab."""
    return said | {key: "(drawn)" for key in ("secret", "pid") if key in said}


def _of_record(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """The record of the lab, without when it was made and what a change has kept."""
    for key, value in lab.record.to_json().items():
        if key == "model":
            yield from ((f"record model {name}", _text(each)) for name, each in value.items())
        elif key not in ("created", "numbers", "revision", "changed"):
            yield f"record {key}", _text(value)
    yield "life cycle", str(lab.life_cycle)
    yield "journal nodes", _text(sorted(lab.identities))


def _of_processes(lab: RunningLab) -> Iterator[tuple[str, str]]:
    """The programs that run in each node, and the state that it has by them."""
    nodes = {identity: node for node, identity in lab.identities.items()}
    found: dict[str, list[str]] = {}
    for process in processes_in(set(nodes)):
        found.setdefault(nodes[process.identity], []).append(process.command)
    for node, commands in found.items():
        yield f"{node} processes", " ".join(sorted(commands))
    for status in lab.status():
        yield f"{status.name} status", f"{status.kind} {status.role} {status.state} {' '.join(status.addresses)}"


def _json(tool: str, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(_run(tool, "-j", *words) or "[]"))


def _run(*argv: str) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode and "Cannot find specified" not in done.stderr and "No such" not in done.stderr:
        raise DriverError(f"{' '.join(argv)}: {done.stderr}")
    return done.stdout if not done.returncode else ""


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
