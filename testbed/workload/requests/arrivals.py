"""When requests arrive: laws of an open loop, in which no arrival waits for an answer.

The gamma law is what `vllm bench serve --burstiness` and AIPerf's `--arrival-pattern gamma` draw: intervals of shape
1 / CV^2. A Poisson process has a CV of 1. Bursts are Poisson arrivals whose rate is a multiple of the base rate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum

from testbed.workload.draws import draw_exponential, draw_gamma
from testbed.workload.frontend import Burst, next_arrival


class ArrivalLaw(StrEnum):
    POISSON = "poisson"
    """Intervals are exponential."""
    GAMMA = "gamma"
    """Intervals have a gamma distribution with the coefficient of variation asked for."""
    ON_OFF = "on-off"
    """A Poisson process whose rate is a multiple of the base rate in bursts."""
    TRACE = "trace"
    """Arrivals are those of a file."""


def poisson_arrivals(rng: random.Random, *, per_s: float, span_ns: int) -> Iterator[float]:
    """Yield the times (ns) of a Poisson process of `per_s` arrivals per second that lie within `span_ns`."""
    at_ns = draw_exponential(rng, 1e9 / per_s)
    while at_ns < span_ns:
        yield at_ns
        at_ns += draw_exponential(rng, 1e9 / per_s)


def gamma_arrivals(rng: random.Random, *, per_s: float, cv: float, span_ns: int) -> Iterator[float]:
    """Yield the times (ns) of arrivals whose intervals have a mean of 1 / `per_s` and a coefficient of variation `cv`.

    The first interval begins at 0, as in `vllm bench serve`; in a short span the expected number of arrivals therefore
    differs from that of a stationary process by about (cv^2 - 1) / 2.
    """
    shape = 1.0 / (cv * cv)
    at_ns = draw_gamma(rng, shape=shape, mean=1e9 / per_s)
    while at_ns < span_ns:
        yield at_ns
        at_ns += draw_gamma(rng, shape=shape, mean=1e9 / per_s)


def on_off_arrivals(rng: random.Random, *, per_s: float, bursts: Sequence[Burst], span_ns: int) -> Iterator[float]:
    """Yield the times (ns) of a Poisson process of `per_s` arrivals per second, and a multiple of that in `bursts`."""
    at_ns = next_arrival(0.0, 1e9 / per_s, bursts, rng)
    while at_ns < span_ns:
        yield at_ns
        at_ns = next_arrival(at_ns, 1e9 / per_s, bursts, rng)
