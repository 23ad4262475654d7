"""The abilities of the running kernel's network stack, found by doing it in a scratch network namespace.

An answer is "" where the thing works, else the kernel's words for why it does not. The namespaces end with the call.
A module that brings devices of its own into the machine's namespace when it is loaded (ifb, dummy, bonding) is only
looked up: probing changes nothing that anybody sees. Others are loaded by asking for them, as a lab would.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from testbed.base.cleanup import closed_at_end
from testbed.base.datapath.markers import KERNEL_MARKERS
from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink, syscalls
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.iproute import converse_here
from testbed.base.linux.modules import ModuleState, module_state
from testbed.base.linux.nftables import NetfilterSocket
from testbed.base.linux.rtnetlink import LinkEnd, RouteSocket, attribute, message, text, u32
from testbed.base.linux.sysctl import write_setting
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.probing.status import Answers
from testbed.lab.core.feature import filters
from testbed.lab.core.model import Guards
from testbed.lab.core.plan.management_plan import GuardManagement
from testbed.lab.core.plan.operations import GuardedPort, GuardSwitch

_A, _B, _BRIDGE, _OTHER = 10, 11, 12, 13
"""Interface indexes in the scratch namespace; 1 is `lo`."""

_ADDRESS = IPv4Address("192.0.2.1")
_NET = Path("/proc/sys/net")
_SYSCTLS = {
    "sysctl.ipv6": (_NET / "ipv6/conf/default/disable_ipv6", "0"),
    "sysctl.multipath policy": (_NET / "ipv4/fib_multipath_hash_policy", "3"),
    "sysctl.multipath fields": (_NET / "ipv4/fib_multipath_hash_fields", "55"),
    "sysctl.multipath seed": (_NET / "ipv4/fib_multipath_hash_seed", "1"),
    "sysctl.rps default mask": (_NET / "core/rps_default_mask", "1"),
    "sysctl.bridged frames": (_NET / "bridge/bridge-nf-call-iptables", "1"),
    "sysctl.mpls": (_NET / "mpls/platform_labels", "100"),
}
CONGESTION_CONTROLS = ("reno", "cubic", "bbr", "dctcp")

_QDISC_OPTIONS = {
    "bfifo": b"",
    "pfifo": b"",
    "netem": wire.netem_options(1_000_000, 0, 10),
    **{marker.qdisc: b"" for marker in KERNEL_MARKERS},
    "ets": attribute(1, b"\x02"),  # TCA_ETS_NBANDS
    "prio": struct.pack("=i16B", 3, *[1] * 16),
    "fq": b"",
    "codel": b"",
    "fq_codel": b"",
    "cake": b"",
    "plug": b"",
}
QDISCS = ("htb", "tbf", *_QDISC_OPTIONS, "clsact", "ingress")
CLASSIFIERS = ("bpf", "u32", "flower", "matchall")
ACTIONS = ("mirred", "gact", "skbedit", "pedit", "police", "bpf")
LINKS = ("veth", "bridge", "ifb", "vxlan", "vrf", "dummy", "bond", "vlan", "macvlan", "tun", "netkit")
_BRINGS_DEVICES = {"ifb": "ifb", "dummy": "dummy", "bond": "bonding"}
"""Kinds of links whose module makes devices in the machine's namespace when it is loaded."""

RTM_NEWACTION, RTM_NEWNEXTHOP = 48, 104
TCP_CONGESTION = 13
TCP_MD5SIG = 14
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 2, 0x1000
_TCA_ACT_TAB = 1
_NHA_ID, _NHA_BLACKHOLE = 1, 4
_NOT_TRIED = "not tried: no network namespace could be made"
_UNKNOWN_KIND = (errno.ENOENT, errno.EOPNOTSUPP)
_libc = ctypes.CDLL(None, use_errno=True)


NAMES = (
    "namespace.net",
    "namespace.mount",
    "process.SCHED_FIFO",
    "process.mlock",
    "mount.bpf",
    *(f"link.{name}" for name in LINKS),
    *(f"qdisc.{name}" for name in QDISCS),
    *(f"classifier.{name}" for name in CLASSIFIERS),
    *(f"action.{name}" for name in ACTIONS),
    "route.nexthop objects",
    "filter.guards",
    "filter.management",
    "socket.md5",
    *_SYSCTLS,
    *(f"tcp.{name}" for name in CONGESTION_CONTROLS),
)
"""The names of all answers."""


def probe_kernel() -> Answers:
    """Try everything once. Needs root for all but the answer that it needs root; takes tens of milliseconds."""
    return syscalls.in_thread(_probe)


def _probe() -> Answers:
    answers = {"namespace.net": attempt(lambda: syscalls.unshare(syscalls.CLONE_NEWNET))}
    answers["namespace.mount"] = attempt(_own_mounts)
    answers |= _real_time()
    if answers["namespace.net"]:
        return dict.fromkeys(NAMES, _NOT_TRIED) | answers
    answers["mount.bpf"] = answers["namespace.mount"] or attempt(_mount_bpf)
    fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    route = RouteSocket()
    try:
        answers |= _links(fd, route)
        port, other = (_A, _B) if not answers["link.veth"] else (1, 1)
        answers |= _qdiscs(route, port, other)
        answers |= _filters(route, port)
        answers["route.nexthop objects"] = _asked(route, rtnetlink.set_link_state(1, True), _new_nexthop())
        answers["filter.guards"] = answers["link.veth"] or _guard_port()
        answers["filter.management"] = answers["link.veth"] or _keep_management_apart()
        answers["socket.md5"] = attempt(_sign_segments)
    finally:
        route.close()
        os.close(fd)
    for name, (path, value) in _SYSCTLS.items():
        answers[name] = attempt(lambda p=path, v=value: write_setting(str(p), v))  # type: ignore[misc]
    answers |= {f"tcp.{name}": attempt(lambda n=name: _use_congestion_control(n)) for name in CONGESTION_CONTROLS}  # type: ignore[misc]
    return answers


def _own_mounts() -> None:
    syscalls.unshare(syscalls.CLONE_FS | syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", None, syscalls.MS_PRIVATE | syscalls.MS_REC)  # what is mounted here stays here


def _mount_bpf() -> None:
    syscalls.mount("bpf", "/proc/self/fdinfo", "bpf", 0)  # any directory does: nobody else sees it


def _real_time() -> Answers:
    """SCHED_FIFO and locked memory, tried in a thread of its own that ends."""
    answers: Answers = {}

    def run() -> None:
        answers["process.SCHED_FIFO"] = attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))

    thread = threading.Thread(target=run, name="real time")
    thread.start()
    thread.join()
    answers["process.mlock"] = attempt(_lock_memory)
    return answers


def _lock_memory() -> None:
    size = 256 << 10
    with mmap.mmap(-1, size) as memory:
        view = (ctypes.c_char * size).from_buffer(memory)
        try:
            address = ctypes.c_void_p(ctypes.addressof(view))
            if _libc.mlock(address, ctypes.c_size_t(size)):
                raise OSError(ctypes.get_errno(), "mlock")
            _libc.munlock(address, ctypes.c_size_t(size))
        finally:
            del view


# ------------------------------------------------------------------ links


def _links(namespace: int, route: RouteSocket) -> Answers:
    a = LinkEnd(namespace=namespace, name="a", ifindex=_A, mac="02:00:00:00:00:01", master=0)
    b = LinkEnd(namespace=namespace, name="b", ifindex=_B, mac="02:00:00:00:00:02", master=0)
    answers = {
        "link.veth": _asked(route, rtnetlink.new_veth(a, b, 1500, 200)),
        "link.bridge": _asked(route, rtnetlink.new_bridge("rail", _BRIDGE, "02:00:00:00:00:03", 1500)),
        "link.tun": attempt(_open_tap),
    }
    lower = 1 if answers["link.veth"] else _A
    return answers | converse_here(lambda pyroute: _other_links(pyroute, lower))


def _other_links(pyroute: Any, lower: int) -> Answers:
    """Kinds of links that labs make, or could. Not all get what they need: it is enough that they are known."""
    from pyroute2 import NetlinkError

    options: dict[str, dict[str, int]] = {
        "ifb": {},
        "vxlan": {"vxlan_id": 10, "vxlan_port": 4789},
        "vrf": {"vrf_table": 10},
        "dummy": {},
        "bond": {},
        "vlan": {"link": lower, "vlan_id": 10},
        "macvlan": {"link": lower},
        "netkit": {},
    }
    answers: Answers = {}
    for kind, settings in options.items():
        module = _BRINGS_DEVICES.get(kind)
        answers[f"link.{kind}"] = ""
        if module is not None and module_state(module) is ModuleState.AVAILABLE:
            continue
        try:
            pyroute.link("add", ifname="other", index=_OTHER, kind=kind, **settings)
            pyroute.link("del", index=_OTHER)
        except NetlinkError as error:
            if error.code in _UNKNOWN_KIND:
                answers[f"link.{kind}"] = error.args[1] or os.strerror(error.code)
    return answers


def _open_tap() -> None:
    with closed_at_end(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)) as fd:
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"tap", IFF_TAP | IFF_NO_PI))


# ------------------------------------------------------------------ traffic control


def _qdiscs(route: RouteSocket, port: int, other: int) -> Answers:
    """HTB with a gate and clsact as a port has them, on `port`; the others one after the other on `other`."""
    answers: Answers = {}
    for kind, options in _QDISC_OPTIONS.items():
        # Labs make netem with these very options; of the others it is enough that they are known.
        ask = _asked if kind == "netem" else _known
        request = traffic.new_qdisc(other, 0x00010000, rtnetlink.TC_H_ROOT, kind, options or None)
        answers[f"qdisc.{kind}"] = ask(route, request)
        route.submit([traffic.delete_root_qdisc(other)])
    answers["qdisc.ingress"] = _asked(route, traffic.new_ingress(other))
    if other == port:
        route.submit([traffic.delete_clsact(other)])
    line = traffic.new_htb_line_class(port, 100_000_000, 20_000, 1500)
    answers["qdisc.htb"] = _asked(route, traffic.new_htb_qdisc(port), line)
    share = traffic.new_htb_traffic_class(
        port, 3, line_rate_bps=100_000_000, burst_bytes=20_000, quantum_bytes=1514, rank=0
    )
    answers["qdisc.tbf"] = answers["qdisc.htb"] or _asked(route, share, traffic.new_gate(port, 3, 1500))
    answers["qdisc.clsact"] = _asked(route, traffic.new_clsact(port))
    return answers


def _filters(route: RouteSocket, port: int) -> Answers:
    """Kinds of filters and actions. Not all get what they need: any answer but "unknown" says that it is there."""
    answers = {
        "classifier.u32": _known(route, wire.redirect_arrivals(port, port)),
        "classifier.bpf": _known(route, traffic.new_bpf_filter(port, traffic.CLSACT_INGRESS, 0xFFFF, "none", 1)),
    }
    for kind in ("flower", "matchall"):
        answers[f"classifier.{kind}"] = _known(route, _new_filter(port, kind))
    for kind in ACTIONS:
        options = text(wire.TCA_ACT_KIND, kind) + attribute(wire.TCA_ACT_OPTIONS, b"")
        body = bytes(4) + attribute(_TCA_ACT_TAB, attribute(1, options))
        answers[f"action.{kind}"] = _known(route, message(RTM_NEWACTION, rtnetlink.NLM_F_CREATE, body))
    return answers


def _new_filter(ifindex: int, kind: str) -> bytes:
    info = 3 << 16 | 0x0300
    body = rtnetlink.TCMSG.pack(0, ifindex, 0, traffic.CLSACT_INGRESS, info)
    body += text(rtnetlink.TCA_KIND, kind) + attribute(rtnetlink.TCA_OPTIONS, b"")
    return message(rtnetlink.RTM_NEWTFILTER, rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL, body)


def _new_nexthop() -> bytes:
    body = struct.pack("=BBBxI", socket.AF_INET, 0, rtnetlink.RTPROT_STATIC, 0)
    body += u32(_NHA_ID, 1) + attribute(_NHA_BLACKHOLE, b"")
    return message(RTM_NEWNEXTHOP, rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL, body)


def _guard_port() -> str:
    """Put all guards in force on a port, as a lab does."""
    port = GuardedPort(name="a", ifindex=_A, mac="02:00:00:00:00:02", addresses=(_ADDRESS,), gateway=_ADDRESS)
    guards = GuardSwitch(node="", guards=Guards.all(), ports=(port,), switches=(_ADDRESS,), stations=(port.mac,))
    return _committed(guards, "guards")


def _keep_management_apart() -> str:
    """Guard a management port, as a lab does."""
    guard = GuardManagement(node="", name="a", ifindex=_A, prefix=IPv4Network((_ADDRESS, 32)))
    return _committed(guard, "management")


def _committed(operation: GuardSwitch | GuardManagement, what: str) -> str:
    try:
        with closing(NetfilterSocket()) as sockets:
            sockets.commit(filters()[type(operation)](operation), what)
    except OSError as error:
        return f"no netfilter: {os.strerror(error.errno or 0)}"
    except DriverError as error:
        return error.message
    return ""


def _sign_segments() -> None:
    """Set a password for a peer (RFC 2385), as bgpd does: struct tcp_md5sig of linux/tcp.h."""
    key = b"password"
    peer = struct.pack("=HH4s120x", socket.AF_INET, 0, socket.inet_aton(str(_ADDRESS)))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as item:
        item.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, peer + struct.pack("=BBHi80s", 0, 0, len(key), 0, key))


# ------------------------------------------------------------------ asking


def _asked(route: RouteSocket, *messages: bytes) -> str:
    for failure in route.submit(messages):
        return failure.reason or os.strerror(failure.errno)
    return ""


def _known(route: RouteSocket, request: bytes) -> str:
    """Tell whether the kernel knows the kind of thing that is asked for, even if it refuses this one."""
    for failure in route.submit([request]):
        if failure.errno in _UNKNOWN_KIND:
            return failure.reason or os.strerror(failure.errno)
    return ""


def attempt(action: Callable[[], object]) -> str:
    """ "" where `action` succeeds, else its `OSError` in words."""
    try:
        action()
    except OSError as error:
        if error.errno == errno.ENOENT:
            return "this kernel does not have it"
        return os.strerror(error.errno) if error.errno else str(error)
    return ""


def _use_congestion_control(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as item:
        item.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
