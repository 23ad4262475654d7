"""Programs as JSON: what is encoded is decoded, and everything that does not fit together is refused with its place."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.nvme.settings import NvmeTcpSettings
from testbed.endpoints.worker.program import Channel, Endpoint, Piece, Program, Request, ScaleUpLinks, Settings, Step
from testbed.endpoints.worker.program_json import decode_program, encode_program
from testbed.endpoints.worker.transport_registry import encode_settings
from testbed.endpoints.worker.transports.rdma import RdmaSettings
from testbed.endpoints.worker.transports.roce import RoceSettings
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.endpoints.worker.transports.uet import UetSettings
from testbed.workload.collectives.datatype import DataType
from testbed.workload.steps import Collective, Combine, InSwitch


def endpoint(rank: int) -> Endpoint:
    return Endpoint(rank=rank, host=f"h{rank}", interface="rail1", address=f"10.0.0.{rank + 1}")


def request(number: int, *, client: int, server: int, start_ns: int) -> Request:
    return Request(
        number=number,
        client=client,
        server=server,
        start_ns=start_ns,
        size_bytes=900,
        prefill_ns=7,
        tpot_ns=2,
        tokens=3,
        chunk_bytes=99,
    )


def program(**changes: Any) -> Program:
    """Rank 0's part of: it sends to rank 1, computes, and gets a block of a collective back."""
    collective = Collective(
        kind="all_gather", algorithm="ring", ranks=(0, 1), size_bytes=16, elements=4, steps=range(0), root=None
    )
    piece = Piece(collective=0, offset=2, length=2, target=2, combine=Combine.COPY)
    fields: dict[str, Any] = {
        "transport": TcpSettings(congestion_control="cubic", tos=104),
        "endpoints": (endpoint(0), endpoint(1), endpoint(2)),
        "own": frozenset({0}),
        "channels": (
            Channel(index=0, source=0, destination=1, source_port=20001, destination_port=18515),
            Channel(index=5, source=1, destination=0, source_port=20002, destination_port=18515),
        ),
        "steps": (
            Step(number=0, source=0, destination=1, size_bytes=100, channel=0, acknowledged=True, start_ns=7),
            Step(number=2, source=0, duration_ns=1000, after=(0,)),
            Step(number=3, source=1, destination=0, size_bytes=8, channel=5, piece=piece),
            Step(number=9, source=0, destination=1, size_bytes=1, channel=0, after=(2, 3)),
            Step(number=11, source=0, destination=2, size_bytes=8, in_switch=InSwitch(operation=4, members=3)),
            Step(number=12, source=2, destination=0, size_bytes=8),
        ),
        "collectives": (collective,),
        "datatypes": (DataType.FLOAT32,),
        "seed": 4,
        "requests": (request(3, client=0, server=1, start_ns=5), request(8, client=1, server=0, start_ns=6)),
        "scale_up": ScaleUpLinks(rate_bps=10**9, one_way_ns=500, domain="p1-s1", neighbours=frozenset({2})),
    }
    return Program(**(fields | changes))


UET = UetSettings(
    config={"cc": "nscc", "trimming": True, "base_rtt_ns": 5000},
    mode="ROD",
    delays_ns={"10.0.0.1": {"10.0.0.2": 700}},
    job_id=9,
    security_key="ab" * 32,
)


ROCE = RoceSettings(
    config={"cc": "dcqcn", "recovery": "selective", "ooo": True},
    cc_parameters={"g": 0.01},
    delays_ns={"10.0.0.1": {"10.0.0.2": 700}},
    qps=4,
    connections="dct",
    dcis=3,
    first_psn=5,
    domain=2,
)


@pytest.mark.parametrize(
    "transport",
    [TcpSettings(), TcpSettings(congestion_control="dctcp", tos=4), UET, RoceSettings(), ROCE, RdmaSettings()],
)
def test_what_is_encoded_is_decoded(transport: Settings) -> None:
    there = program(transport=transport)
    if transport.kind != "tcp":
        there = replace(there, requests=())
    assert decode_program(json.loads(json.dumps(encode_program(there)))) == there


def step(position: int, name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return set_key("steps", position, Step.__struct_fields__.index(name), value=value)


def piece(position: int, name: str, value: object) -> Callable[[dict[str, Any]], None]:
    at = Step.__struct_fields__.index("piece")
    return set_key("steps", position, at, Piece.__struct_fields__.index(name), value=value)


def asked(position: int, name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return set_key("requests", position, Request.__struct_fields__.index(name), value=value)


def set_key(*path: Any, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


def drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.pop(name)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (set_key("version", value=2), "version"),
        (drop("seed"), "program.seed"),
        (set_key("extra", value=1), "program.extra"),
        (set_key("seed", value=-1), "seed"),
        (set_key("seed", value=True), "seed"),
        (set_key("transport", "kind", value="quic"), "transport.kind"),
        (set_key("transport", "tos", value=256), "transport.tos"),
        (set_key("endpoints", 0, 3, value="10.0.0"), "endpoints[0]"),
        (set_key("endpoints", 1, 0, value=0), "endpoints"),
        (set_key("own", value=[7]), "own"),
        (set_key("channels", 0, 1, value=1), "channels[0]"),
        (set_key("channels", 1, 0, value=0), "channels"),
        (set_key("channels", 0, 3, value=65536), "channels[0][3]"),
        (set_key("channels", 0, value=[0, 0, 1]), "channels[0]"),
        (set_key("collectives", 0, 0, value="all_sum"), "collectives[0][0]"),
        (set_key("collectives", 0, 4, value=1 << 60), "collectives[0][4]"),
        (set_key("collectives", 0, 2, value=[0, 0]), "collectives[0].ranks"),
        (set_key("datatypes", value=[]), "datatypes"),
        (set_key("datatypes", value=["int8"]), "datatypes[0]"),
        (set_key("steps", 0, value=[0]), "steps[0]"),
        (set_key("steps", value={}), "steps"),
        (step(1, "number", 0), "steps[1]"),
        (step(1, "number", 1.0), "steps[1][0]"),
        (step(0, "source", 3), "steps[0]"),
        (step(1, "source", 1), "steps[1]"),
        (step(0, "size_bytes", 0), "steps[0]"),
        (step(0, "size_bytes", 1 << 32), "steps[0][3]"),
        (step(2, "size_bytes", 4), "steps[2]"),
        (step(0, "channel", 5), "steps[0]"),
        (step(0, "channel", None), "steps[0]"),
        (step(3, "after", [1]), "steps[3]"),
        (step(3, "after", [9]), "steps[3]"),
        (step(3, "after", [2, 2]), "steps[3]"),
        (step(3, "after", ["2"]), "steps[3][6][0]"),
        (step(2, "after", [0]), "steps[2]"),
        (step(0, "acknowledged", False), "steps[1]"),
        (step(0, "acknowledged", 1), "steps[0][9]"),
        (step(1, "restores", 0), "steps[1]"),
        (step(1, "restores", -2), "steps[1][11]"),
        (piece(2, "collective", 1), "steps[2]"),
        (piece(2, "offset", 3), "steps[2]"),
        (piece(2, "target", -1), "steps[2][8][3]"),
        (piece(2, "combine", "add"), "steps[2][8][4]"),
        (piece(2, "combine", "none"), "steps[2]"),
        (step(1, "duration_ns", -5), "steps[1][4]"),
        (step(5, "source", 1), "steps[5]"),
        (step(5, "destination", 2), "steps[5]"),
        (step(0, "in_switch", {"operation": 4, "members": 0, "multicast": False}), "steps[0]"),
        (step(5, "in_switch", {"operation": 4, "members": 0, "multicast": False}), "steps[5]"),
        (step(4, "in_switch", {"operation": 4, "members": 0, "multicast": False}), "steps[4]"),
        (step(4, "in_switch", {"operation": 4, "members": 3, "more": 0}), "steps[4][12].more"),
        (set_key("scale_up", "neighbours", value=[0]), "scale_up"),
        (set_key("scale_up", "domain", value=""), "scale_up"),
        (set_key("scale_up", "one_way_ns", value=-1), "scale_up.one_way_ns"),
        (set_key("scale_up", "more", value=1), "scale_up.more"),
        (set_key("transport", value={"kind": "rdma"}), "requests"),
        (set_key("transport", value=encode_settings(NvmeTcpSettings())), "collectives"),
        (asked(0, "tokens", 0), "requests[0][7]"),
        (asked(0, "tokens", True), "requests[0][7]"),
        (asked(1, "chunk_bytes", 15), "requests[1][8]"),
        (asked(0, "size_bytes", 1 << 40), "requests[0][4]"),
        (asked(1, "number", 3), "requests"),
        (asked(1, "start_ns", 4), "requests[1]"),
        (asked(0, "server", 0), "requests[0]"),
        (asked(0, "server", 7), "requests[0]"),
        (set_key("requests", 0, value=[1]), "requests[0]"),
        (set_key("requests", value={}), "requests"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_its_place(
    change: Callable[[dict[str, Any]], None], where: str
) -> None:
    document = json.loads(json.dumps(encode_program(program())))
    change(document)
    with pytest.raises(ProgramError) as refused:
        decode_program(document)
    assert refused.value.path == where, refused.value


@pytest.mark.parametrize("document", [None, 3, [], "program", {}])
def test_what_is_no_program_at_all(document: object) -> None:
    with pytest.raises(ProgramError):
        decode_program(document)


def test_arrays_beyond_all_memory_are_refused() -> None:
    document = encode_program(program())
    document = copy.deepcopy(document)
    document["collectives"] = [["all_gather", "ring", [0, 1], 16, 1 << 33, None, 0]]
    with pytest.raises(ProgramError, match="bytes, more than"):
        decode_program(document)
