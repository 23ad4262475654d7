"""A law of every workload that our generators make: a rank waits for what it has seen itself."""

from testbed.workload.steps import Transfer, Workload


def check_local(workload: Workload) -> None:
    """Raise `ValueError` if a step waits for one in which its rank takes no part."""
    for step in workload.steps:
        rank = step.begun_by if isinstance(step, Transfer) else step.rank
        for number in step.after:
            before = workload.steps[number]
            took_part = (before.source, before.destination) if isinstance(before, Transfer) else (before.rank,)
            if rank not in took_part:
                raise ValueError(f"step {step.number} of rank {rank} waits for step {number} of ranks {took_part}")
