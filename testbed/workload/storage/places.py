"""Which ranks are storage, and which use it."""

from __future__ import annotations

from testbed.base.errors import WorkloadError
from testbed.workload.parameters import listed, some_ranks

STORAGE = some_ranks("storage", 1, "Says how many ranks (the last ones) are storage, or which.")
"""The parameter of every workload that uses storage."""


def storage_and_users(
    storage: int | tuple[int, ...], users: int | tuple[int, ...] | None, *, ranks: int, name: str, what: str
) -> tuple[list[int], list[int]]:
    """Return the ranks that are storage (the last ones, where only their number is given), and those that use it.

    `name` is the parameter that names the users, `what` the workload. Raises `WorkloadError` where one of both is
    empty or they share a rank.
    """
    everyone = list(range(ranks))
    targets = everyone[-storage:] if isinstance(storage, int) else list(storage)
    using = listed(users, [rank for rank in everyone if rank not in targets], name)
    if not targets or not using or set(targets) & set(using):
        raise WorkloadError(f"{what} needs {name}, and storage ranks that are none of them", field="storage")
    return targets, using
