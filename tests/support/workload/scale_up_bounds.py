"""Times of collectives over a scale-up domain and rails, as formulas: what rooflines of their steps are compared with.

All are of S bytes per GPU, of n = m g GPUs in m domains of g; B is the rate of a NIC and rho times that the rate of a
GPU's scale-up links, both each way. They have no latency, and are in units of S / B.
"""

from __future__ import annotations


def ring_all_reduce(*, ranks: int) -> float:
    """One ring over all NICs: 2 (n - 1) / n (Patarasuk and Yuan, 2009)."""
    return 2 * (ranks - 1) / ranks


def hierarchical_all_reduce(
    *, domains: int, gpus: int, rho: float, in_switch: float = 0.0, pipelined: bool = False
) -> float:
    """ReduceScatter in the domain, a ring along each rail, AllGather in the domain.

    `in_switch` is the share of the links' rate that operations in the switch have (NVLS); 0: there are none. Pipelined,
    the longer part is what counts, else both one after the other.
    """
    inside = nvls_all_reduce(gpus=gpus, efficiency=in_switch) / rho if in_switch else 2 * (gpus - 1) / gpus / rho
    rails = 2 * (domains - 1) / domains / gpus
    return max(inside, rails) if pipelined else inside + rails


def nvls_all_reduce(*, gpus: int, efficiency: float = 1.0) -> float:
    """AllReduce in the switch, in units of S over the links' rate: each GPU sends and receives S (1 + 1/g)."""
    return (1 + 1 / gpus) / efficiency


def nvls_gain(*, gpus: int, efficiency: float = 1.0) -> float:
    """How many times faster than a ring over the same links: at most 2 (g - 1) / (g + 1), 1.56 for 8 GPUs."""
    return 2 * (gpus - 1) / gpus / nvls_all_reduce(gpus=gpus, efficiency=efficiency)


def all_to_all(*, domains: int, gpus: int, rho: float) -> float:
    """S split over all n peers (its own share included): the slower of fabric and scale-up."""
    ranks = domains * gpus
    return max((ranks - gpus) / ranks, (gpus - 1) / ranks / rho)


def relay_all_to_all(*, domains: int, gpus: int, rho: float, pipelined: bool = False) -> float:
    """The same with a relay in the domain (PXN), which (g - 1) / g of what leaves it goes through first.

    Where that is not overlapped it adds (g - 1) / (g rho) of the fabric's time: 9.7 % for g = 8 and rho = 9, in the
    range of Wang et al., "Rail-only", arXiv 2307.12169v5 (8.2 to 11.2 %).
    """
    ranks = domains * gpus
    fabric = (ranks - gpus) / ranks
    inside = (gpus - 1) / ranks / rho
    relayed = fabric * (gpus - 1) / gpus / rho
    return max(fabric, inside + relayed) if pipelined else max(fabric, inside) + relayed


def domains_of_a_token(*, domains: int, top_k: int, experts: int) -> float:
    """How many scale-up domains a token with `top_k` of `experts` equally popular experts goes to, on average.

    A domain has experts / domains of them; the token misses it where all its experts are among the others
    (hypergeometric): 1.99 of 2, 3.61 of 4 and 5.29 of 8 for 8 of 256.
    """
    others, missed = experts - experts // domains, 1.0
    for chosen in range(top_k):
        missed *= max(0, others - chosen) / (experts - chosen)
    return domains * (1 - missed)
