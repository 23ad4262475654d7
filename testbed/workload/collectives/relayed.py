"""All-to-all over rails, with a relay inside the scale-up domain: NCCL's PXN ("PCI x NVLink", since 2.12).

A GPU gives what is for a GPU of another domain to the one of its own domain that is on the destination's rail, over
scale-up links; that GPU's NIC sends it. All that crosses the fabric so stays on its rail, and a NIC has m - 1 peers
instead of g (m - 1), of m domains with g GPUs each. Source: NVIDIA, "Doubling all2all performance with NVIDIA
Collective Communication Library 2.12" (2022). Over rails that do not reach each other it is the one way (Wang et al.,
"Rail-only", arXiv 2307.12169).
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.base.errors import WorkloadError
from testbed.workload.collectives.group import Group
from testbed.workload.steps import Slice


def relay_staging(elements: int, *, ranks: int, domains: int) -> int:
    """Return how many elements a rank keeps for others: a block of each GPU of its domain for each other domain."""
    per_domain = ranks // domains
    return elements // ranks * (per_domain - 1) * (domains - 1)


def relayed_all_to_all(group: Group, elements: int, *, domains: Sequence[Sequence[int]], window: int | None) -> None:
    """Block j of member i becomes block i of member j, as by `direct_all_to_all`; `domains` has the members by domain.

    Behind the two buffers of `elements` each lie the blocks that a member passes on (`relay_staging`). It begins with
    the next domain, and passes each block on as soon as it is there. `window` limits what it has under way to GPUs of
    its domain, and on its NIC.
    """
    gpus = len(domains[0])
    if any(len(domain) != gpus for domain in domains):
        raise WorkloadError("a relay needs the same number of ranks in every scale-up domain", field="algorithm")
    index = {rank: number for number, rank in enumerate(group.ranks)}
    members = [[index[rank] for rank in domain] for domain in domains]
    blocks = Slice(offset=0, length=elements).split(group.size)
    size = elements // group.size
    limit = group.size if window is None else window

    def target(source: int) -> Slice:
        return Slice(offset=elements + blocks[source].offset, length=size)

    for distance in range(1, len(members)):
        for here, domain in enumerate(members):
            there = members[(here + distance) % len(members)]
            for rail, destination in enumerate(there):
                relay = domain[rail]
                own = blocks[destination]
                group.send(
                    relay, destination, own, target=target(relay), what=f"{distance}.rail", lane="rail", window=limit
                )
                others = [member for member in domain if member != relay]
                for number, source in enumerate(others):
                    slot = (distance - 1) * (gpus - 1) + number
                    kept = Slice(offset=2 * elements + slot * size, length=size)
                    given = group.send(
                        source, relay, own, target=kept, what=f"{distance}.relay", lane="inside", window=limit
                    )
                    group.send(
                        relay,
                        destination,
                        kept,
                        target=target(source),
                        after=given,
                        what=f"{distance}.rail",
                        lane="rail",
                        window=limit,
                    )
    for domain in members:
        for turn in range(1, gpus):
            for place, source in enumerate(domain):
                destination = domain[(place + turn) % gpus]
                piece = blocks[destination]
                group.send(
                    source,
                    destination,
                    piece,
                    target=target(source),
                    what=f"{turn}.inside",
                    lane="inside",
                    window=limit,
                )
