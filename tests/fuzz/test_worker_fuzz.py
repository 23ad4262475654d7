"""Whatever stands in a program or a command, a worker refuses it or does it; nothing else comes of it."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.base.program_errors import ProgramError
from testbed.endpoints.loop import Loop
from testbed.endpoints.worker.program import Channel, Endpoint, Program, Request, Step
from testbed.endpoints.worker.program_json import decode_program, encode_program
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.endpoints.worker.worker import Event, Worker

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
COMMANDS = st.sampled_from(["prepare", "connect", "start", "stop", "count", "release", "dance"])


def example() -> dict[str, Any]:
    ends = [Endpoint(rank=rank, host=f"h{rank}", interface="rail1", address=f"127.0.0.{rank + 1}") for rank in range(2)]
    whole = Program(
        transport=TcpSettings(),
        endpoints=tuple(ends),
        own=frozenset({0}),
        channels=(Channel(index=0, source=0, destination=1, source_port=20001, destination_port=18515),),
        steps=(
            Step(number=0, source=0, destination=1, size_bytes=10, channel=0, acknowledged=True),
            Step(number=1, source=0, duration_ns=5, after=(0,)),
        ),
        requests=(
            Request(
                number=4,
                client=0,
                server=1,
                start_ns=1,
                size_bytes=300,
                prefill_ns=1,
                tpot_ns=1,
                tokens=2,
                chunk_bytes=20,
            ),
        ),
    )
    document: dict[str, Any] = json.loads(json.dumps(encode_program(whole)))
    return document


def empty() -> dict[str, Any]:
    """A program that needs no network."""
    return example() | {"channels": [], "steps": [], "requests": []}


@st.composite
def mutated(draw: st.DrawFn) -> object:
    """A program with a few places changed."""
    document = copy.deepcopy(example())
    for _ in range(draw(st.integers(1, 3))):
        place: Any = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = place[key]
            if isinstance(inner, dict | list) and inner and draw(st.booleans()):
                place = inner
                continue
            place[key] = draw(JSON)
            break
    return document


@settings(max_examples=400, deadline=None)
@given(document=JSON | mutated())
def test_a_program_is_decoded_or_refused(document: object) -> None:
    try:
        assert encode_program(decode_program(document))
    except ProgramError as refused:
        assert str(refused)


@settings(max_examples=100, deadline=None)
@given(
    commands=st.lists(JSON | st.fixed_dictionaries({"do": COMMANDS}, optional={"at_ns": JSON, "of": JSON}), max_size=6)
)
def test_a_worker_outlives_every_command(commands: list[object]) -> None:
    """Programs of one own rank need no network until they are connected."""
    loop = Loop()
    told: list[Event] = []
    worker = Worker(loop, told.append)
    try:
        for command in commands:
            prepares = isinstance(command, dict) and command.get("do") == "prepare"
            worker.execute({"do": "prepare", "program": empty()} if prepares else command)
            worker.turn()
    finally:
        worker.close()
        loop.close()
    assert all(
        event["event"] in ("refused", "listening", "ready", "report", "released", "progress", "done") for event in told
    )
