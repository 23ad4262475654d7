"""The fluid model of DCQCN: its fixed point, how far that is from instability, and the model's course in time.

Sources: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 5, equations (5) to
(9), which are the model; Zhu, Ghobadi, Misra, Padhye, "ECN or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY",
CoNEXT 2016, section 3, for its fixed point (equation (11)) and its stability. N greedy flows share one port:

* p(t): RED, 0 below Kmin, from there in a straight line to Pmax at Kmax (equation (5)), of a queue of which dq/dt is
  the sum of all R_C, less C (equation (6)).
* An interval of tau has a CNP with probability a = 1 - (1 - p)^(tau R_C): one of its packets was marked. In an interval
  of tau', alpha follows by g (equation (7)).
* The byte counter ends after B packets without a mark, which happens b R_C times a second, the timer after T: d R_C
  times. After F in a row, c R_C and e R_C times a second, R_T rises by R_AI (equation (8)); R_C goes half the way to it
  with all of them, and falls by alpha / 2 with each CNP (equation (9)).

Marks come back tau* later. The model knows no hyper increase, and neither the course of a flow's rate between two CNPs
nor chance: only their means. It is that of the paper's reaction point, which cuts with every CNP, and not that of NICs
that look once in an interval whether one has come.

Rates are counted in packets, since every packet is marked by itself; what goes in and out is in bit/s and bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from testbed.protocols.congestion.dcqcn import DcqcnParameters

Floats = npt.NDArray[np.float64]

_BISECTIONS = 200
_LEAST_MARKING = 1e-15
_NODES = 24
"""Of the polynomial that stands for the last tau*: its roots are exact to many digits long before."""
_FREQUENCIES = 20_000
_LARGEST_EXPONENT = 700.0
_STATES = 4
"""R_C, R_T and alpha of one flow, and the queue."""
_QUEUE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    """Where the model stays. `queue_bytes` may be above Kmax: then there is no such point on the line of RED."""

    marking: float
    """p*."""
    queue_bytes: float
    """q* = Kmin + p* / Pmax (Kmax - Kmin)."""
    rate_bps: float
    """R_C of each flow: C / N."""
    target_bps: float
    """R_T."""
    alpha: float
    cnp_share: float
    """Of the intervals of tau that have a CNP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The model over time, from `integrate`: one row for each time."""

    times_s: Floats
    queue_bytes: Floats
    rates_bps: Floats
    """A column for each flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DcqcnFluid:
    """The parameters of the model: those of the port, of the flows, and of DCQCN."""

    flows: int
    """N."""
    capacity_bps: float
    """C."""
    packet_bytes: int
    """Of a full packet on the wire."""
    kmin_bytes: float
    kmax_bytes: float
    pmax: float
    cnp_s: float
    """tau."""
    alpha_s: float
    """tau'."""
    timer_s: float
    """T."""
    counter_bytes: float
    """B."""
    fast_recovery: int
    """F."""
    additive_bps: float
    """R_AI."""
    g: float

    def __post_init__(self) -> None:
        for name in ("flows", "capacity_bps", "packet_bytes", "pmax", "cnp_s", "alpha_s", "timer_s", "additive_bps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.kmin_bytes < self.kmax_bytes:
            raise ValueError("Kmin must not be below 0, nor as large as Kmax")

    @classmethod
    def of(
        cls,
        parameters: DcqcnParameters,
        *,
        flows: int,
        capacity_bps: float,
        packet_bytes: int,
        curve: tuple[float, float, float],
    ) -> Self:
        """Return the model of flows with these parameters; `curve` is (Kmin, Kmax, Pmax), in bytes.

        Raises `ValueError` for a set of parameters whose rate is not cut with every CNP, or that has no byte counter.
        """
        if parameters.decrease_us or not parameters.counter_bytes:
            raise ValueError("the model is of the reaction point of the paper, with a byte counter and a cut per CNP")
        kmin_bytes, kmax_bytes, pmax = curve
        return cls(
            flows=flows,
            capacity_bps=capacity_bps,
            packet_bytes=packet_bytes,
            kmin_bytes=kmin_bytes,
            kmax_bytes=kmax_bytes,
            pmax=pmax,
            cnp_s=parameters.cnp_us / 1e6,
            alpha_s=parameters.alpha_us / 1e6,
            timer_s=parameters.timer_us / 1e6,
            counter_bytes=parameters.counter_bytes,
            fast_recovery=parameters.fast_recovery,
            additive_bps=parameters.additive_bps,
            g=parameters.g,
        )

    def fixed_point(self) -> FixedPoint:
        """Return the fixed point: p* solves equation (11), a^2 alpha = tau^2 R_AI R_C (b + d) (c + e).

        What is left of the left side over the right one is monotonic in p, so halving finds the only solution.
        """
        rate = self._fair_rate
        low, high = _LEAST_MARKING, 1 - 1e-12
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            a, b, c, d, e = self._terms(middle, rate)
            alpha = -math.expm1(self.alpha_s * rate * math.log1p(-middle))
            falls = a * a * alpha > self.cnp_s**2 * self._additive * rate * (b + d) * (c + e)
            low, high = (low, middle) if falls else (middle, high)
        a, _, c, _, e = self._terms(high, rate)
        target = rate + self.cnp_s * self._additive * rate * (c + e) / a
        return FixedPoint(
            marking=high,
            queue_bytes=self.kmin_bytes + high / self.pmax * (self.kmax_bytes - self.kmin_bytes),
            rate_bps=self.capacity_bps / self.flows,
            target_bps=target * 8 * self.packet_bytes,
            alpha=-math.expm1(self.alpha_s * rate * math.log1p(-high)),
            cnp_share=a,
        )

    def approximate_marking(self) -> float:
        """Return what the paper gives for small p*, by Taylor's series: the cube root of R_AI N^2 / (tau' C^2) times
        the square of 1/B + N/(T C)."""
        capacity = self._capacity
        often = self.packet_bytes / self.counter_bytes + self.flows / (self.timer_s * capacity)
        return float(np.cbrt(self._additive * self.flows**2 / (self.alpha_s * capacity**2) * often**2))

    def growth_per_s(self, delay_s: float) -> float:
        """Return how fast a small deviation from the fixed point grows (below 0: decays), with a tau* of `delay_s`.

        It is the real part of the rightmost root of the characteristic equation of the linearised model, by the roots
        of the polynomial that has its values at Chebyshev's points of the last tau* (Breda, Maset, Vermiglio,
        "Pseudospectral Differencing Methods for Characteristic Roots of Delay Differential Equations", 2005).
        """
        now, late = self._linearised()
        places = np.arange(_NODES + 1)
        points = np.cos(np.pi * places / _NODES)
        weights = np.where((places == 0) | (places == _NODES), 2.0, 1.0) * (-1.0) ** places
        differences = points[:, None] - points[None, :] + np.eye(_NODES + 1)
        derive = np.outer(weights, 1 / weights) / differences
        derive -= np.diag(derive.sum(axis=1))
        generator = np.kron(derive * 2 / delay_s, np.eye(_STATES))
        generator[:_STATES] = 0.0
        generator[:_STATES, :_STATES] = now
        generator[:_STATES, -_STATES:] = late
        return float(np.linalg.eigvals(generator).real.max())

    def phase_margin_degrees(self, delay_s: float) -> float:
        """Return how much more lag the loop bears that leads from the marks over the flows to the queue.

        Below 0 it is unstable (section 3 of the CoNEXT paper). Infinite where its gain is never 1.
        """
        now, late = self._linearised()
        marks = late.copy()
        marks[:, :_QUEUE] = 0.0
        rest = late - marks
        omega = np.logspace(0, 7, _FREQUENCIES)
        lag = np.exp(-1j * omega * delay_s)[:, None, None]
        matrices = 1j * omega[:, None, None] * np.eye(_STATES) - now - rest * lag
        driven = np.broadcast_to(marks[:, _QUEUE].astype(complex)[:, None], (len(omega), _STATES, 1))
        gain = -np.linalg.solve(matrices, driven)[:, _QUEUE, 0] * lag[:, 0, 0]
        phase = np.degrees(np.unwrap(np.angle(gain)))
        crossings = np.flatnonzero((np.abs(gain[:-1]) >= 1) & (np.abs(gain[1:]) < 1))
        return float((180 + phase[crossings]).min()) if len(crossings) else math.inf

    def _linearised(self) -> tuple[Floats, Floats]:
        """Return what the changes of the states depend on: the states now, and those of tau* ago."""
        point = self.fixed_point()
        rate, bits = self._fair_rate, 8 * self.packet_bytes
        at = np.array([rate, point.target_bps / bits, point.alpha, point.marking, rate])
        slopes = np.empty((_QUEUE, len(at)))
        for index in range(len(at)):
            step = np.zeros(len(at))
            step[index] = 1e-5 * at[index]
            slopes[:, index] = (self._changes(at + step) - self._changes(at - step)) / (2 * step[index])
        now, late = np.zeros((_STATES, _STATES)), np.zeros((_STATES, _STATES))
        now[:_QUEUE, :_QUEUE] = slopes[:, :_QUEUE]
        now[_QUEUE, 0] = self.flows
        late[:_QUEUE, 0] = slopes[:, 4]
        late[:_QUEUE, _QUEUE] = slopes[:, 3] * self.pmax / (self.kmax_bytes - self.kmin_bytes) * self.packet_bytes
        return now, late

    def _changes(self, at: Floats) -> Floats:
        """Equations (9), (8) and (7) at R_C, R_T, alpha, and p and R_C of tau* ago."""
        rate, target, alpha, marking, late_rate = (float(value) for value in at)
        a, b, c, d, e = self._terms(marking, late_rate)
        notified = -math.expm1(self.alpha_s * late_rate * math.log1p(-marking))
        gap = target - rate
        return np.array(
            [
                -rate * alpha * a / (2 * self.cnp_s) + gap / 2 * late_rate * (b + d),
                -gap * a / self.cnp_s + self._additive * late_rate * (c + e),
                self.g / self.alpha_s * (notified - alpha),
            ]
        )

    def integrate(self, initial_bps: Floats, *, delay_s: float, seconds: float, step_s: float = 1e-6) -> Course:
        """Return the model from the beginning, with each flow at its initial rate and the alpha of a first CNP, 1.

        By Euler's method, since a step is far below every time of the model. Rates do not exceed C.
        """
        bits = 8 * self.packet_bytes
        rates = np.array(initial_bps, dtype=float) / bits
        targets, alphas, queue = rates.copy(), np.ones_like(rates), 0.0
        late, count = max(1, round(delay_s / step_s)), round(seconds / step_s)
        kept_rates, kept_queue = np.empty((count, len(rates))), np.empty(count)
        for number in range(count):
            kept_rates[number], kept_queue[number] = rates, queue
            before = max(0, number - late)
            marking, old = self._marking(kept_queue[before]), kept_rates[before]
            a, b, c, d, e = (np.array(one) for one in zip(*(self._terms(marking, rate) for rate in old), strict=True))
            notified = -np.expm1(self.alpha_s * old * np.log1p(-marking)) if marking < 1 else np.ones_like(old)
            gap = targets - rates
            fall = rates * alphas * a / (2 * self.cnp_s)
            rates, targets = (
                np.minimum(self._capacity, rates + step_s * (gap / 2 * old * (b + d) - fall)),
                np.minimum(self._capacity, targets + step_s * (self._additive * old * (c + e) - gap * a / self.cnp_s)),
            )
            alphas = alphas + step_s * self.g / self.alpha_s * (notified - alphas)
            queue = max(0.0, queue + step_s * (float(kept_rates[number].sum()) - self._capacity))
        return Course(
            times_s=np.arange(count, dtype=np.float64) * step_s,
            queue_bytes=kept_queue * self.packet_bytes,
            rates_bps=kept_rates * bits,
        )

    def _marking(self, queue: float) -> float:
        """Equation (5), of a queue in packets."""
        depth = queue * self.packet_bytes
        if depth <= self.kmin_bytes:
            return 0.0
        if depth > self.kmax_bytes:
            return 1.0
        return self.pmax * (depth - self.kmin_bytes) / (self.kmax_bytes - self.kmin_bytes)

    @property
    def _capacity(self) -> float:
        return self.capacity_bps / (8 * self.packet_bytes)

    @property
    def _fair_rate(self) -> float:
        return self._capacity / self.flows

    @property
    def _additive(self) -> float:
        return self.additive_bps / (8 * self.packet_bytes)

    def _terms(self, marking: float, rate: float) -> tuple[float, float, float, float, float]:
        """Return a to e (below equation (11)): the share of intervals with a CNP, and how many increases there are for
        each packet that is sent, by bytes and by time, all and those after F."""
        counter, timer = self.counter_bytes / self.packet_bytes, self.timer_s * rate
        if marking <= 0:
            return 0.0, 1 / counter, 1 / counter, 1 / timer, 1 / timer
        if marking >= 1:
            return 1.0, 0.0, 0.0, 0.0, 0.0
        unmarked = math.log1p(-marking)
        by_bytes, bytes_after = self._increases(marking, -counter * unmarked)
        by_time, time_after = self._increases(marking, -timer * unmarked)
        return -math.expm1(self.cnp_s * rate * unmarked), by_bytes, bytes_after, by_time, time_after

    def _increases(self, marking: float, exponent: float) -> tuple[float, float]:
        """Return how many increases a packet stands for, and how many after F, where exp(-exponent) is the chance that
        none of those packets is marked that an increase takes."""
        if exponent > _LARGEST_EXPONENT:
            return 0.0, 0.0
        often = marking / math.expm1(exponent)
        return often, often * math.exp(-self.fast_recovery * exponent)
