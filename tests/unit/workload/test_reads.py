"""Reads over transports that have none: a request goes first, and nothing else changes."""

from local_waits import check_local

from testbed.workload.builder import StepBuilder
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import READ_REQUEST_BYTES, Transfer, Workload, with_requests
from testbed.workload.tenants import Tenant, mix_tenants


def reading(start_ns: int = 0) -> Workload:
    builder = StepBuilder(3)
    first = builder.transfer(2, 0, 1000, pulled=True, start_ns=start_ns, label="first")
    done = builder.compute(0, 5, after=(first,), is_batch=True)
    builder.transfer(1, 0, 2000, after=(done,), pulled=True, label="second")
    builder.transfer(0, 1, 3000, after=(done,))
    return builder.build("reading")


def test_a_read_is_asked_for_when_it_would_have_begun() -> None:
    found = with_requests(reading(start_ns=7))
    check_local(found)
    assert [(one.source, one.destination, one.size_bytes, one.after, one.start_ns) for one in found.transfers] == [
        (0, 2, READ_REQUEST_BYTES, (), 7),
        (2, 0, 1000, (0,), 0),
        (0, 1, READ_REQUEST_BYTES, (2,), 0),
        (1, 0, 2000, (3,), 0),
        (0, 1, 3000, (2,), 0),
    ]
    assert not any(one.pulled for one in found.transfers)
    assert with_requests(found) is found


def test_a_transport_that_pulls_keeps_its_reads() -> None:
    workload = reading()
    assert with_requests(workload, pulls=lambda step: True) is workload
    mixed = with_requests(workload, pulls=lambda step: step.source == 2)
    check_local(mixed)
    assert [(one.source, one.pulled) for one in mixed.transfers] == [(2, True), (0, False), (1, False), (0, False)]


def test_what_a_read_restores_is_still_that_write() -> None:
    builder = StepBuilder(2)
    first = builder.transfer(1, 0, 10, pulled=True)
    written = builder.transfer(0, 1, 10, after=(first,))
    builder.transfer(1, 0, 10, after=(written,), pulled=True, restores=written)
    both = [
        Tenant(name=name, workload=builder.build("w"), ranks=ranks) for name, ranks in (("a", (0, 1)), ("b", (2, 3)))
    ]
    found = with_requests(mix_tenants(both, ranks=4))
    restored = [(step.number, step.restores) for step in found.transfers if step.restores is not None]
    assert restored == [(4, 2), (9, 7)]
    assert all(found.transfers[origin].size_bytes == 10 for _, origin in restored)


def test_a_collective_behind_reads_still_has_its_steps() -> None:
    operation = CollectiveOperation(kind="all_reduce", size_bytes=4096)
    reduced = generate_collective(operation, ranks=3)
    both = mix_tenants(
        [
            Tenant(name="reads", workload=reading(), ranks=(0, 1, 2)),
            Tenant(name="sums", workload=reduced, ranks=(3, 4, 5)),
        ],
        ranks=6,
    )
    found = with_requests(both)
    [before], [after] = both.collectives, found.collectives
    assert len(after.steps) == len(before.steps)
    labels = [
        [one.steps[number].label for number in span] for one, span in ((both, before.steps), (found, after.steps))
    ]
    assert labels[0] == labels[1]
    assert all(isinstance(found.steps[number], Transfer) for number in after.steps)
