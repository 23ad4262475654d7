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

_TRAFFIC_CLASS = _text("traffic_class", "class of the topology's qos that the packets are of; default: by the kind")

TRANSPORTS: dict[str, tuple[Parameter, ...]] = {
    TransportKind.TCP.value: (
        _text("cc", "congestion control by its kernel name, such as cubic; default: the machine's"),
        _TRAFFIC_CLASS,
    ),
    TransportKind.UET.value: (
        choice("cc", None, ("nscc", "rccc", "both", "none"), "congestion control; default: nscc"),
        choice("paths", None, ("single", "oblivious", "bitmap", "reps"), "path selection; default: reps"),
        _TRAFFIC_CLASS,
        choice("mode", None, ("rud", "rod"), "reliable delivery: unordered (rud) or ordered (rod); default: rud"),
        flag("trimming", "senders learn of trimmed packets; default: as the switches trim", default=None),
        flag("tss", "encrypt and authenticate every packet (transport security)"),
        flag("crc", "a CRC32C behind every packet"),
        flag(
            "loss_inference",
            "infer losses from selective acknowledgements; default: unless switches trim",
            default=None,
        ),
        flag("ack_per_packet", "acknowledge every packet"),
        whole("payload_bytes", None, "of a full packet; default: as the MTU allows", low=64, high=16383),
        whole("packets_per_entropy", None, "packets of a burst that share one; default: 4", high=64),
        whole("pdcs_per_peer", None, "packet delivery contexts to each peer; default: 1", high=64),
        whole("max_rto_retx", None, "time-outs of a packet before a transfer is given up; default: 5", high=15),
        whole("mpr", None, "packets under way to a receiver, in 128; default: 8", high=255),
    ),
    TransportKind.RDMA.value: (
        _TRAFFIC_CLASS,
        choice(
            "test",
            None,
            ("bandwidth", "latency"),
            "what pairs measure: what a flow with a duration carries, or how long a message of the workload's bytes"
            " takes that is alone; default: bandwidth",
        ),
        choice(
            "verb",
            None,
            ("write", "read", "send", *ATOMIC_VERBS),
            "what carries messages, atomics 8 bytes; default: write",
        ),
        whole("iterations", None, "messages of a pair for latency; default: 1000", low=5, high=20_000),
        flag("together", "pairs measure latency all at once; default: one after the other"),
        whole("qps", None, "queue pairs of a flow with a duration; default: 1", high=1024),
        whole("message_bytes", None, "of its messages; default: 65536", high=8 << 20),
        whole("tx_depth", None, "its messages under way; default: 128", high=8192),
        whole(
            "qp_timeout", None, "a pair waits 4.096 us * 2^this for an acknowledgement; default: 18, 1.07 s", high=31
        ),
        whole("path_mtu", None, "256, 512, 1024, 2048 or 4096 bytes; default: as the MTU allows", low=256, high=4096),
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
