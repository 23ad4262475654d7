"""Bytes of anybody's making: frames, events, requests, attachments. One kind of error each, never another."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from attached_ports import attached_port
from hypothesis import given
from hypothesis import strategies as st
from memory_maps import maps_in_memory, ring_in_memory
from pfc_frames import ETHERTYPE, OPCODE, PAUSE_ADDRESS, MalformedPfc, decode_pfc

from testbed.daemons.kit import configuration
from testbed.daemons.kit.control import answer
from testbed.daemons.portd.attachment import LabAttachment
from testbed.daemons.portd.errors import PauseAgentError
from testbed.daemons.portd.lab import AttachedLab

HEAD = PAUSE_ADDRESS + bytes(6) + ETHERTYPE.to_bytes(2, "big") + OPCODE.to_bytes(2, "big")


@given(st.one_of(st.binary(max_size=80), st.binary(max_size=60).map(lambda tail: HEAD + tail)))
def test_frames(frame: bytes) -> None:
    try:
        decoded = decode_pfc(frame)
    except MalformedPfc:
        return
    assert 0 <= decoded.vector <= 0xFF
    assert len(decoded.quanta) == 8


def _refuse(_request: object) -> dict[str, Any]:
    raise PauseAgentError("no")


@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: json.dumps(text).encode())))
def test_requests(line: bytes) -> None:
    reply = answer(line, _refuse)
    assert reply["ok"] is False
    assert json.loads(json.dumps(reply))["error"]


@given(st.integers(1, 3000).map(lambda depth: b"[" * depth))
def test_deep_requests(line: bytes) -> None:
    assert answer(line, _refuse)["kind"] == "request"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)
GOOD = LabAttachment(
    lab="lab",
    pin_directory=Path("/sys/fs/bpf/x"),
    events_file=Path("/nonexistent/events"),
    ports=(attached_port(1, 2, namespace="/run/netns/none"),),
)


DOCUMENT: dict[str, Any] = json.loads(configuration.encode(GOOD))


def test_attachments_survive_the_round_trip() -> None:
    assert configuration.decode(configuration.encode(GOOD), LabAttachment) == GOOD


@given(
    st.dictionaries(st.sampled_from(sorted(DOCUMENT)), json_values),
    st.sampled_from(sorted(DOCUMENT["ports"][0])),
    json_values,
)
def test_attachments(changes: dict[str, Any], field: str, value: Any) -> None:
    port = DOCUMENT["ports"][0] | {field: value}
    for document in (DOCUMENT | changes, DOCUMENT | {"ports": [port]}):
        with contextlib.suppress(ValueError):
            assert isinstance(configuration.decode(json.dumps(document).encode(), LabAttachment), LabAttachment)


@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=32, max_size=32)), max_size=40))
def test_events(records: list[bytes]) -> None:
    """Sends and gate changes fail here, as in a namespace that is gone: still nothing raises."""
    lab = AttachedLab.over(GOOD, maps_in_memory(2), ring_in_memory(records))
    lab.work()
    lab.close()
    assert lab.broken_events >= sum(len(record) != 32 for record in records)


@given(st.binary(max_size=400), st.integers(0, 1 << 20))
def test_rings_of_nobodys_making(written: bytes, produced: int) -> None:
    """Headers that no kernel writes: reading ends, within the memory."""
    ring = ring_in_memory([])
    ring.data[: len(written)] = np.frombuffer(written, "u1")
    ring.produced[0] = produced
    lab = AttachedLab.over(GOOD, maps_in_memory(2), ring)
    lab.work()
    lab.close()
    assert ring.consumed[0] <= produced
