"""Every transport that a scenario can name: what it is called, what it takes, and what does not go together.

One of the three files of a transport; the others have its name: `testbed.run.transports.NAME` (on a lab) and
`testbed.endpoints.worker.transports.NAME` (moves bytes). Readers, JSON Schema and documentation take keys from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from testbed.base.lazy import LazyMapping
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC
from testbed.run.schema.transport_rules import (
    ATOMIC_BYTES,
    ATOMIC_VERBS,
    PLANNED,
    TCP_CC_RULE,
    TRAFFIC_CLASS_RULE,
    Conflict,
    NameRule,
    Values,
    cc_parameters,
    infiniband_conflicts,
    no_conflict,
    nvme_conflicts,
    path_mtu_conflicts,
    roce_conflicts,
    tcp_conflicts,
)
from testbed.workload.parameters import Parameter, choice, flag, text, whole


class TransportKind(StrEnum):
    """The name of a transport, as `transport: {kind: ...}` has it."""

    TCP = "tcp"
    """The kernel's TCP."""
    UET = "uet"
    """Ultra Ethernet in user space (`testbed.endpoints`)."""
    ROCE = "roce"
    """RoCEv2 with its congestion control in user space (`testbed.endpoints`)."""
    IB = "ib"
    """InfiniBand's transport over a fabric with `link_layer: infiniband`, in virtual time."""
    RDMA = "rdma"
    """Kernel soft-RDMA (rxe) with perftest."""
    NVME_TCP = "nvme-tcp"
    """NVMe over TCP between hosts and storage targets, in user space (`testbed.endpoints.storage`)."""
    NBD = "nbd"
    """NBD between hosts and storage targets, by fio and nbdkit."""
    NFS = "nfs"
    """NFSv4 between hosts and storage targets, by fio and NFS-Ganesha."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportDeclaration:
    """Everything that a file may say of one transport."""

    kind: TransportKind
    description: str
    """A sentence about it, for the reference."""
    parameters: tuple[Parameter, ...]
    """`cc`, `paths` and `traffic_class` become fields of `run.schema.model.Transport`, the others its options."""
    names: Mapping[str, NameRule] = field(default_factory=dict)
    """The form of each key's value that names something."""
    timed: bool = False
    """Pairs of programs can send over it for a `duration`."""
    carries_http: bool = False
    """Requests and answers over HTTP can go over its connections."""
    in_tenants: bool = True
    """Its packets are known to pass the VXLAN of an overlay's tenants."""
    hears_of_trimmed: bool = False
    """It learns from a trimmed packet what to send again."""
    hears_of_paths: bool = False
    """It chooses the path of each packet by what it has heard of the paths of others."""
    to_targets: bool = False
    """It moves bytes between hosts and storage targets alone."""
    by_fio: bool = False
    """Each of its transfers is a job of fio, which a workload may describe."""
    beside_others: bool = True
    """Its workers can work on a host where another transport's do, too."""
    stripes_over_planes: bool = False
    """Each of its messages goes over all planes that a NIC has ports in; else a flow rides one of them."""
    routed_by_kernel: bool = False
    """Its packets leave by the port that the kernel's routes choose, whichever has the address that they are from."""
    program_keys: tuple[str, ...] | None = None
    """The keys that mean something for a program of the user's own, whose sockets it carries; None: it carries none."""
    over_subnet: bool = False
    """It goes over InfiniBand alone."""
    by_libfabric: bool = False
    """The provider of libfabric speaks it."""
    conflicts: Callable[[Values], Iterator[Conflict]] = no_conflict
    """Finds values that do not go together."""
    timed_conflicts: Callable[[Values], Iterator[Conflict]] = no_conflict
    """Finds values that a workload with a `duration` cannot have."""


_PATHS = choice(
    "paths",
    None,
    ("hashed", PLANNED),
    "Says whether a channel's path is what its source port hashes to (hashed, default), or planned from the graph.",
)
_TRAFFIC_CLASS = text(
    "traffic_class",
    "Names the class of the topology's qos that the packets are of; by default the kind of transport does.",
)

SCALE_UP_KEYS = ("scale_up", "scale_up_errors", "scale_up_timeout_ms")
"""The keys about transfers inside a scale-up domain, which do not go over the transport itself."""
_SCALE_UP = (
    choice(
        "scale_up",
        None,
        ("packets", "time"),
        "Says how transfers inside a scale-up domain are carried: as frames through its switch (packets), or as copies"
        " that take the links' time (time); by default as the topology's fabric.scale_up.by says.",
    ),
    choice(
        "scale_up_errors",
        None,
        ("end", "count"),
        "Says whether a transfer inside a domain that fails ends the run (end, default), or is counted (count).",
    ),
    whole(
        "scale_up_timeout_ms",
        None,
        "Gives up a transaction inside a domain that is not answered, and a domain in which nothing moves, after so"
        " many ms of lab time; the default is 5000.",
        low=10,
        high=600_000,
    ),
)
_SCALE_UP_BY_TIME = choice(
    "scale_up", None, ("time",), "Says that transfers inside a scale-up domain are copies that take the links' time."
)

# --- TCP -------------------------------------------------------------------------------------------------


def _timed_tcp_conflicts(values: Values) -> Iterator[Conflict]:
    if values.get("paths") == PLANNED:
        message = "the channels of what is sent for a duration are iperf3's, whose ports are not planned"
        yield Conflict(key="paths", message=message, hint="bytes: 64bdp instead of duration; or paths: hashed")
    if values.get("cc") == "dctcp":
        # without ECN from its SYN on, it falls back to Reno and does not say so (net/ipv4/tcp_dctcp.c, dctcp_init)
        yield Conflict(
            key="cc",
            message="iperf3, which sends for a duration, chooses dctcp only once it has connected without ECN",
            hint="bytes: 64bdp instead of duration; or cc: cubic",
        )


_TCP = TransportDeclaration(
    kind=TransportKind.TCP,
    program_keys=("cc",),
    carries_http=True,
    routed_by_kernel=True,
    description="The kernel's TCP moves the bytes; what is sent for a duration is sent by iperf3.",
    parameters=(
        text("cc", f"Names the congestion control as the kernel does, such as bbr; the default is {DEFAULT_TCP_CC}."),
        _PATHS,
        _TRAFFIC_CLASS,
        *_SCALE_UP,
    ),
    names={
        "traffic_class": TRAFFIC_CLASS_RULE,
        "cc": TCP_CC_RULE,
    },
    timed=True,
    conflicts=tcp_conflicts,
    timed_conflicts=_timed_tcp_conflicts,
)

# --- UET -------------------------------------------------------------------------------------------------


def _uet_conflicts(values: Values) -> Iterator[Conflict]:
    if values.get("mode") == "rod" and values.get("paths") not in (None, "single"):
        yield Conflict(
            key="paths", message="ordered delivery (rod) has a single path", hint="mode: rud sprays", of_key=True
        )


def _uet() -> TransportDeclaration:
    from testbed.protocols.uet.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER
    from testbed.protocols.uet.paths import DEFAULT_PATHS, PathKind

    return TransportDeclaration(
        kind=TransportKind.UET,
        program_keys=(),
        by_libfabric=True,
        hears_of_trimmed=True,
        hears_of_paths=True,
        stripes_over_planes=True,
        description="Ultra Ethernet (specification 1.0) moves the bytes in user space, over UDP.",
        parameters=(
            choice(
                "cc", None, tuple(CONTROLLERS), f"Names the congestion control; the default is {DEFAULT_CONTROLLER}."
            ),
            choice("paths", None, tuple(PathKind), f"Says how paths are selected; the default is {DEFAULT_PATHS}."),
            _TRAFFIC_CLASS,
            choice(
                "mode", None, ("rud", "rod"), "Chooses unordered (rud, default) or ordered (rod) reliable delivery."
            ),
            flag(
                "trimming",
                "Says whether senders learn of trimmed packets; by default where switches trim.",
                default=None,
            ),
            flag("tss", "Says whether every packet is encrypted and authenticated (transport security)."),
            flag("crc", "Says whether a CRC32C stands behind every packet."),
            flag(
                "loss_inference",
                "Says whether losses are inferred from selective acknowledgements; by default unless switches trim.",
                default=None,
            ),
            flag(
                "oversubscribed_cc",
                "Says whether destinations grant less credit (cc: rccc) where the fabric carries less; by default they"
                " do.",
                default=None,
            ),
            flag("ack_per_packet", "Says whether every packet is acknowledged."),
            whole(
                "payload_bytes",
                None,
                "Gives the payload of a full packet; by default what the MTU allows.",
                low=64,
                high=16383,
            ),
            whole(
                "packets_per_entropy",
                None,
                "Says how many packets of a burst share an entropy, and are a peer's turn; the default is 1.",
                high=64,
            ),
            whole(
                "recycled_entropy_uses",
                None,
                "Says for how many choices an entropy is good that came back to REPS; the default is 1.",
                high=64,
            ),
            whole(
                "pdcs_per_peer",
                None,
                "Says how many packet delivery contexts there are to each peer; the default is 1.",
                high=64,
            ),
            whole(
                "max_rto_retx",
                None,
                "Says after how many time-outs of a packet a transfer is given up; the default is 5.",
                high=15,
            ),
            whole(
                "mpr", None, "Limits the packets under way to a receiver, in units of 128; the default is 8.", high=255
            ),
            *_SCALE_UP,
        ),
        names={"traffic_class": TRAFFIC_CLASS_RULE},
        conflicts=_uet_conflicts,
    )


_PATH_MTU = whole(
    "path_mtu",
    None,
    "Gives the path MTU: 256, 512, 1024, 2048 or 4096 bytes; by default what the MTU allows.",
    low=256,
    high=4096,
)


# --- RDMA ------------------------------------------------------------------------------------------------

_OF_BANDWIDTH = {
    "qps": "a pair has one queue pair",
    "message_bytes": "workload: {bytes: 64} is the message",
    "tx_depth": "one message is under way",
}
_OF_LATENCY = {"iterations": "test: latency", "together": "test: latency"}
"""Options of one of perftest's tests, and what to do about them in the other."""


def _rdma_conflicts(values: Values) -> Iterator[Conflict]:
    yield from path_mtu_conflicts(values.get("path_mtu"))
    latency, verb = values.get("test") == "latency", values.get("verb")
    for name, hint in (_OF_BANDWIDTH if latency else _OF_LATENCY).items():
        if values.get(name) not in (None, False):
            message = f"{name} is of {'bandwidth' if latency else 'latency'} tests"
            yield Conflict(key=name, message=message, hint=hint, of_key=True)
    if not latency and verb in ATOMIC_VERBS and values.get("message_bytes") not in (None, ATOMIC_BYTES):
        message = f"{verb} is of {ATOMIC_BYTES} bytes"
        yield Conflict(key="message_bytes", message=message, hint="remove the key", of_key=True)


_RDMA = TransportDeclaration(
    kind=TransportKind.RDMA,
    description="The kernel's soft RoCEv2 (rxe) moves the bytes: perftest's, and reliable queue pairs' of collectives.",
    parameters=(
        _TRAFFIC_CLASS,
        _SCALE_UP_BY_TIME,
        choice(
            "test",
            None,
            ("bandwidth", "latency"),
            "Chooses what pairs measure: what a flow with a duration carries (bandwidth, default), or how long a lone"
            " message of the workload's bytes takes (latency).",
        ),
        choice(
            "verb",
            None,
            ("write", "read", "send", *ATOMIC_VERBS),
            "Names the verb that carries messages, 8 bytes where it is atomic; the default is write.",
        ),
        whole(
            "iterations",
            None,
            "Says how many messages of a pair measure latency; the default is 1000.",
            low=5,
            high=20_000,
        ),
        flag("together", "Says whether pairs measure latency all at once; by default one after the other."),
        whole("qps", None, "Says how many queue pairs a flow with a duration has; the default is 1.", high=1024),
        whole(
            "message_bytes", None, "Gives the size of the messages of such a flow; the default is 65536.", high=8 << 20
        ),
        whole("tx_depth", None, "Limits the messages of such a flow under way; the default is 128.", high=8192),
        whole(
            "qp_timeout",
            None,
            "Lets a pair wait 4.096 us * 2^qp_timeout for an acknowledgement; the default is 18, which is 1.07 s.",
            high=31,
        ),
        _PATH_MTU,
    ),
    names={"traffic_class": TRAFFIC_CLASS_RULE},
    in_tenants=False,
    beside_others=False,
    timed=True,
    conflicts=_rdma_conflicts,
)

# --- RoCE ------------------------------------------------------------------------------------------------


def _roce() -> TransportDeclaration:
    from testbed.protocols.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER
    from testbed.protocols.roce.dynamic import DEFAULT_INITIATORS
    from testbed.protocols.roce.recovery import DEFAULT_RECOVERY, RECOVERIES

    return TransportDeclaration(
        kind=TransportKind.ROCE,
        program_keys=(),
        description="RoCEv2, reliable connections with WRITEs, moves the bytes in user space, over UDP.",
        parameters=(
            choice(
                "cc",
                None,
                tuple(CONTROLLERS),
                f"Names the congestion control; the default is {DEFAULT_CONTROLLER}.",
            ),
            text(
                "parameters",
                "Names a set of parameters of the congestion control; by default its first. `cc: none` takes no"
                " notice.",
            ),
            _PATHS,
            _TRAFFIC_CLASS,
            text("cnp_class", "Names the class that CNPs are of; by default the one that waits nowhere (DSCP 48)."),
            choice(
                "recovery",
                None,
                tuple(RECOVERIES),
                f"Says how lost packets are sent again; the default is {DEFAULT_RECOVERY}.",
            ),
            flag(
                "ooo", "Says whether packets out of order are no sign of loss, and written where they belong at once."
            ),
            whole("qps", None, "Says over how many queue pairs a channel is striped; the default is 1.", high=256),
            choice(
                "connections",
                None,
                ("rc", "dct"),
                "Says whether each channel has queue pairs of its own at both ends (rc, default), or initiators of a"
                " pool attach to targets while there is work (dct).",
            ),
            whole(
                "dcis",
                None,
                f"Says how many initiators a NIC has with connections: dct; the default is {DEFAULT_INITIATORS}.",
                high=256,
            ),
            _PATH_MTU,
            whole(
                "timeout",
                None,
                "Lets the peer answer for 4.096 us * 2^timeout of the real fabric; by default for 32 round trips, or"
                " longer on slow links.",
                high=31,
            ),
            whole(
                "retry_count",
                None,
                "Says how often is sent again what was not answered in time; the default is 7.",
                high=7,
            ),
            *cc_parameters(),
            *_SCALE_UP,
        ),
        names={
            "traffic_class": TRAFFIC_CLASS_RULE,
            "cnp_class": TRAFFIC_CLASS_RULE,
            "parameters": NameRule(
                pattern=re.compile(r"[a-z][a-z0-9-]{0,30}"), noun="set of parameters", example="such as paper, nvidia"
            ),
        },
        conflicts=roce_conflicts,
    )


# --- InfiniBand ------------------------------------------------------------------------------------------


def _ib() -> TransportDeclaration:
    from testbed.protocols.roce.dynamic import DEFAULT_INITIATORS

    return TransportDeclaration(
        kind=TransportKind.IB,
        description="InfiniBand's queue pairs move the bytes over a fabric with link_layer: infiniband, in virtual time"
        " (--backend simulation).",
        parameters=(
            choice(
                "cc",
                None,
                ("none", "ccti"),
                "Names the congestion control: none (default), or InfiniBand's by FECN, BECN and CCTI (ccti).",
            ),
            choice(
                "service",
                None,
                ("rc", "ud"),
                "Chooses reliable connections (rc, default), or datagrams of a path MTU that nobody acknowledges (ud).",
            ),
            choice(
                "connections",
                None,
                ("rc", "dc"),
                "Says whether each channel has queue pairs of its own at both ends (rc, default), or initiators of a"
                " pool attach to targets while there is work (dc).",
            ),
            whole(
                "dcis",
                None,
                f"Says how many initiators an HCA has with connections: dc; the default is {DEFAULT_INITIATORS}.",
                high=256,
            ),
            whole("qps", None, "Says over how many queue pairs a channel is striped; the default is 1.", high=256),
            flag(
                "ooo", "Says whether packets out of order are no sign of loss, and written where they belong at once."
            ),
            whole(
                "path_mtu",
                None,
                "Gives the path MTU: 256, 512, 1024, 2048 or 4096 bytes (default).",
                low=256,
                high=4096,
            ),
            whole(
                "timeout",
                None,
                "Lets the peer answer for 4.096 us * 2^timeout; the default is 14, which is 67 ms.",
                high=31,
            ),
            whole(
                "retry_count",
                None,
                "Says how often is sent again what was not answered in time; the default is 7.",
                high=7,
            ),
            *cc_parameters("ccti"),
        ),
        in_tenants=False,
        beside_others=False,
        over_subnet=True,
        conflicts=infiniband_conflicts,
    )


# --- NVMe/TCP --------------------------------------------------------------------------------------------

_NVME_TCP = TransportDeclaration(
    kind=TransportKind.NVME_TCP,
    to_targets=True,
    routed_by_kernel=True,
    description="Hosts write to storage targets and read from them by NVMe/TCP, in user space over the kernel's TCP.",
    parameters=(
        text("cc", f"Names TCP's congestion control as the kernel does; the default is {DEFAULT_TCP_CC}."),
        _TRAFFIC_CLASS,
        whole(
            "depth", None, "Says how many commands of a host and target are under way; the default is 16.", high=1024
        ),
        whole(
            "io_bytes",
            None,
            "Gives the bytes of a command, a multiple of 512; the default is 1 MiB.",
            low=512,
            high=4 << 20,
        ),
        flag(
            "multipath",
            "Says whether a host has a path to each NIC of a target, of which another goes on where one dies; else it"
            " has one, to the NIC that it sends to.",
        ),
        whole(
            "keep_alive_ms",
            None,
            "Gives the keep-alive time-out in ms of lab time, after which a silent path is dead; the default is 5000.",
            low=100,
            high=600_000,
        ),
        whole(
            "io_timeout_ms",
            None,
            "Gives the time in ms of lab time after which a path is reset that does not answer a command; the default"
            " is 10000, or four times what all commands under way may take.",
            low=100,
            high=3_600_000,
        ),
        flag("digests", "Says whether PDUs have header and data digests (CRC32C)."),
    ),
    names={"traffic_class": TRAFFIC_CLASS_RULE, "cc": _TCP.names["cc"]},
    conflicts=nvme_conflicts,
)

# --- by fio ----------------------------------------------------------------------------------------------


def _request_bytes(most: int) -> Parameter:
    return whole(
        "io_bytes",
        None,
        "Gives the bytes of a request at most; the default is 1 MiB. All requests of a transfer are alike.",
        low=512,
        high=most,
    )


_NBD = TransportDeclaration(
    kind=TransportKind.NBD,
    to_targets=True,
    by_fio=True,
    routed_by_kernel=True,
    description="Hosts write to storage targets and read from them by NBD: each transfer is a job of fio, and nbdkit"
    " serves.",
    parameters=(
        whole("depth", None, "Says how many requests of a transfer are under way; the default is 16.", high=1024),
        _request_bytes(4 << 20),
        choice(
            "order",
            None,
            ("sequential", "random"),
            "Says in which order the blocks of a transfer are visited; the default is sequential.",
        ),
    ),
)

_NFS = TransportDeclaration(
    kind=TransportKind.NFS,
    to_targets=True,
    by_fio=True,
    routed_by_kernel=True,
    description="Hosts write to storage targets and read from them by NFSv4: each transfer is a file and a job of fio,"
    " and NFS-Ganesha serves.",
    parameters=(_request_bytes(1 << 20),),
)

_KNOWN = {one.kind.value: one for one in (_TCP, _RDMA, _NVME_TCP, _NBD, _NFS)}
_MADE = {TransportKind.UET.value: _uet, TransportKind.ROCE.value: _roce, TransportKind.IB.value: _ib}
"""Their declarations name what a protocol has, which is imported for that."""
TRANSPORTS: Mapping[str, TransportDeclaration] = LazyMapping(
    (kind.value for kind in TransportKind), lambda name: _KNOWN.get(name) or _MADE[name]()
)
"""By the name of the kind, in the order in which they are listed."""

DEFAULT_TRANSPORT = TransportKind.TCP
