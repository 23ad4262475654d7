"""The `transport:` section: which kind, and what each kind takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Annotated, Any

from testbed.errors import Problem
from testbed.model.scenario import ATOMIC_BYTES, Transport, TransportKind
from testbed.spec.validation.by_kind import ByKind
from testbed.spec.validation.declared import models_by_kind, written_values
from testbed.spec.validation.engine import validate_partly
from testbed.spec.validation.fields import Section
from testbed.spec.validation.model import SpecModel
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import quote
from testbed.workload.parameters import Parameter, ParameterType, choice, flag, whole

_CC_NAME = re.compile(r"[a-z][a-z0-9_-]{0,14}")
_CLASS_NAME = re.compile(r"[a-z][a-z0-9_-]{0,15}")


def _text(name: str, description: str) -> Parameter:
    return Parameter(name=name, type=ParameterType.TEXT, description=description)


ATOMIC_VERBS = ("fetch-and-add", "compare-and-swap")
_OF_BANDWIDTH = {
    "qps": "a pair has one queue pair",
    "message_bytes": "workload: {bytes: 64} is the message",
    "tx_depth": "one message is under way",
}
_OF_LATENCY = {"iterations": "test: latency", "together": "test: latency"}
"""Options of one of the tests, and what to do about them in the other."""

_TRAFFIC_CLASS = _text(
    "traffic_class",
    "Names the class of the topology's qos that the packets are of; by default the kind of transport does.",
)

TRANSPORTS: dict[str, tuple[Parameter, ...]] = {
    TransportKind.TCP.value: (
        _text("cc", "Names the congestion control as the kernel does, such as cubic; the default is the machine's."),
        _TRAFFIC_CLASS,
    ),
    TransportKind.UET.value: (
        choice("cc", None, ("nscc", "rccc", "both", "none"), "Names the congestion control; the default is nscc."),
        choice(
            "paths",
            None,
            ("single", "oblivious", "bitmap", "reps"),
            "Says how paths are selected; the default is reps.",
        ),
        _TRAFFIC_CLASS,
        choice("mode", None, ("rud", "rod"), "Chooses unordered (rud, default) or ordered (rod) reliable delivery."),
        flag(
            "trimming", "Says whether senders learn of trimmed packets; by default where switches trim.", default=None
        ),
        flag("tss", "Says whether every packet is encrypted and authenticated (transport security)."),
        flag("crc", "Says whether a CRC32C stands behind every packet."),
        flag(
            "loss_inference",
            "Says whether losses are inferred from selective acknowledgements; by default unless switches trim.",
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
            "packets_per_entropy", None, "Says how many packets of a burst share an entropy; the default is 4.", high=64
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
        whole("mpr", None, "Limits the packets under way to a receiver, in units of 128; the default is 8.", high=255),
    ),
    TransportKind.RDMA.value: (
        _TRAFFIC_CLASS,
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
        whole(
            "path_mtu",
            None,
            "Gives the path MTU: 256, 512, 1024, 2048 or 4096 bytes; by default what the MTU allows.",
            low=256,
            high=4096,
        ),
    ),
}
"""By kind: its parameters. `cc`, `paths` and `traffic_class` are fields of `Transport`, the others its options."""


@cache
def _models() -> Mapping[str, type[SpecModel]]:
    return models_by_kind("transport", TRANSPORTS, default=TransportKind.TCP.value)


TRANSPORT = ByKind("transport", _models, "transport: {kind: uet, cc: nscc}", TransportKind.TCP.value)
TransportField = Section[Annotated[SpecModel, TRANSPORT]]

_FIELDS = ("cc", "paths", "traffic_class")
_PATH_MTUS = (256, 512, 1024, 2048, 4096)


def resolve_transport(document: Document, directory: FilePath, problems: list[Problem]) -> Transport:
    """The transport that a document describes, as far as its values are right, which is checked with the whole file.

    Keys that contradict each other are added to `problems`.
    """
    path = ("transport",)
    data = document.get(path)
    if data is None:
        return Transport()
    try:
        model = TRANSPORT.choose(data)
    except ValueError:
        return Transport()
    spec = validate_partly(model, document, path)
    if spec is None:
        return Transport()
    values = written_values(spec, directory)
    values.pop("kind", None)
    kind = str(getattr(spec, "kind"))  # noqa: B009  # of the models made for the kinds
    named = [("traffic_class", _CLASS_NAME, "traffic class")]
    if kind == TransportKind.TCP.value:
        named.append(("cc", _CC_NAME, "congestion control"))
    for key, pattern, noun in named:
        if key in values and not pattern.fullmatch(values[key]):
            example = "such as cubic, dctcp, bbr" if key == "cc" else "lower-case letters, digits, '_' and '-'"
            message = f"{quote(values[key])} cannot name a {noun}: {example}"
            problems.append(document.problem("bad-name", (*path, key), message))
    mtu = values.get("path_mtu")
    if mtu is not None and mtu not in _PATH_MTUS:
        message = f"must be one of {', '.join(map(str, _PATH_MTUS))}, not {mtu}"
        problems.append(document.problem("unknown-value", (*path, "path_mtu"), message))
    problems.extend(_test_problems(document, values))
    if values.get("mode") == "rod" and values.get("paths") not in (None, "single"):
        message = "ordered delivery (rod) has a single path"
        problems.append(document.problem("contradiction", (*path, "paths"), message, hint="mode: rud sprays", key=True))
    return Transport(
        kind=TransportKind(kind),
        cc=values.get("cc"),
        paths=values.get("paths"),
        traffic_class=values.get("traffic_class"),
        options={key: value for key, value in values.items() if key not in _FIELDS},
    )


def _test_problems(document: Document, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Options of perftest that are not those of the test, and those that an atomic operation has no room for."""
    latency, verb = values.get("test") == "latency", values.get("verb")
    for name, hint in (_OF_BANDWIDTH if latency else _OF_LATENCY).items():
        if values.get(name) not in (None, False):
            message = f"{name} is of {'bandwidth' if latency else 'latency'} tests"
            yield document.problem("contradiction", ("transport", name), message, hint=hint, key=True)
    if not latency and verb in ATOMIC_VERBS and values.get("message_bytes") not in (None, ATOMIC_BYTES):
        message = f"{verb} is of {ATOMIC_BYTES} bytes"
        yield document.problem(
            "contradiction", ("transport", "message_bytes"), message, hint="remove the key", key=True
        )
