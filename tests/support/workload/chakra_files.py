"""Chakra execution traces for tests, coded field by field as et_def.proto has them.

`python tests/support/workload/chakra_files.py` rewrites the traces of tests/golden/workload/formats.
"""

import gzip
import struct
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden" / "workload" / "formats"
METADATA, COMP, SEND, RECV, COLL = 1, 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, BARRIER = 0, 2, 5, 6, 9


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def content(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: int | str | bool | float, field: int | None = None) -> bytes:
    """An AttributeProto: int64_val, string_val, bool_val or double_val unless `field` names another number field."""
    head = content(1, name.encode())
    match value:
        case bool():
            return head + number(27, int(value))
        case str():
            return head + content(29, value.encode())
        case float():
            return head + varint(3 << 3 | 1) + struct.pack("<d", value)
    return head + number(field or 9, value)


def node(
    identifier: int,
    kind: int,
    *,
    name: str = "",
    after: tuple[int, ...] = (),
    us: int = 0,
    packed: bool = True,
    **attributes: int | str | bool | float,
) -> bytes:
    """A Node with `after` as its data dependencies."""
    body = number(1, identifier) + content(2, name.encode()) + number(3, kind)
    if packed and after:
        body += content(5, b"".join(map(varint, after)))
    else:
        body += b"".join(number(4, one) for one in after)
    if us:
        body += number(6, 0) + number(7, us)
    return body + b"".join(content(10, attribute(key, value)) for key, value in attributes.items())


def trace(*nodes: bytes, version: str = "0.0.4") -> bytes:
    metadata = content(1, version.encode()) + content(2, attribute("schema", "chakra"))
    return b"".join(varint(len(message)) + message for message in (metadata, *nodes))


def golden_traces() -> dict[str, bytes]:
    """A pipeline of two stages, each of two tensor-parallel ranks; rank 3's trace is gzipped."""
    files = {}
    for rank in range(4):
        group, stage = str(rank // 2), rank // 2
        nodes = [node(0, METADATA, name="## process_group:init ##")]
        if stage == 0:
            nodes += [
                node(1, COMP, name="layer", after=(0,), us=50, num_ops=10**9, is_cpu_op=False),
                node(2, COLL, name="tp", after=(1,), comm_type=ALL_REDUCE, comm_size=4096, pg_name=group),
                node(
                    3, SEND, name="to stage 1", after=(2,), comm_src=rank, comm_dst=rank + 2, comm_tag=7, comm_size=1000
                ),
            ]
        else:
            nodes += [
                node(1, RECV, name="from stage 0", after=(0,), packed=False, comm_src=rank - 2, comm_tag=7),
                node(2, COMP, name="layer", after=(1,), us=60),
                node(3, COLL, name="tp", after=(2,), comm_type=ALL_GATHER, comm_size=2048, pg_name=group),
            ]
        nodes.append(node(9, COLL, name="step end", after=(3,), comm_type=BARRIER))
        files[f"pipeline.{rank}.et"] = trace(*nodes)
    files["pipeline.3.et"] = gzip.compress(files["pipeline.3.et"], mtime=0)
    turned = [
        trace(
            node(1, RECV, name="wait", after=(), comm_src=1 - rank),
            node(2, SEND, name="answer", after=(1,), comm_dst=1 - rank, comm_size=8),
        )
        for rank in range(2)
    ]
    return {
        **files,
        "own-cycle.0.et": trace(
            node(1, COMP, name="a", after=(3,), us=1),
            node(2, COMP, name="b", after=(1,), us=1),
            node(3, COMP, name="c", after=(2,), us=1),
        ),
        "deadlock.0.et": turned[0],
        "deadlock.1.et": turned[1],
        "unmatched.0.et": trace(
            node(1, SEND, comm_dst=1, comm_size=10),
            node(2, SEND, comm_dst=1, comm_size=0),
            node(3, COLL, name="sum", comm_type=ALL_REDUCE, comm_size=64),
            node(4, COLL, name="sum", comm_type=ALL_REDUCE, comm_size=64),
            node(5, COMP, name="gemm", num_ops=1000),
        ),
        "unmatched.1.et": trace(
            node(1, RECV, comm_src=0, comm_tag=1),
            node(2, RECV, comm_src=5),
            node(3, COLL, name="sum", comm_type=ALL_REDUCE, comm_size=64),
        ),
        "truncated.0.et": trace(node(1, COMP, us=1), node(2, COMP, us=2, after=(1,)))[:-3],
    }


if __name__ == "__main__":
    for file, data in golden_traces().items():
        (GOLDEN / file).write_bytes(data)
