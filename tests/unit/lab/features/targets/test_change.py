"""Storage targets of a lab that is changed: what differs of those that both files have is said."""

from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.targets.change import target_rows

TEXT = """name: lab
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1, targets: {targets}}}
"""


def model(targets: str) -> Lab:
    return load_topology_text(TEXT.format(targets=targets), file="lab.yml")


def test_a_target_is_what_its_file_says_now() -> None:
    old = model("{flash: {count: 2}}")
    assert not list(target_rows(old, old))
    assert not list(target_rows(old, model("{flash: {count: 3}}"))), "a target more is a node more"
    rows = list(target_rows(old, model("{flash: {count: 2, capacity: 2TiB, medium: {latency: 80us}}}")))
    detail = "capacity 1.1 TB -> 2.199 TB, medium depth 128 -> 80 us depth 128"
    assert rows == [
        ChangeRow(effect=Effect.CHANGED, node=node, what="storage target", detail=detail)
        for node in ("flash1", "flash2")
    ]


def test_protocols_are_joined() -> None:
    (row,) = target_rows(model("{flash: {}}"), model("{flash: {protocol: [nvme-tcp, nbd]}}"))
    assert row.detail == "protocols nvme-tcp -> nvme-tcp+nbd"
