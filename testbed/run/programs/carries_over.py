"""Sentences for a program's report: which of its figures carry over to the real fabric, and which do not."""

from __future__ import annotations

from collections import Counter

from testbed.base.units import Duration
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.program import represent
from testbed.run.placed.traffic import bdp_bytes, make_traffic
from testbed.run.schema.model import Scenario

FEW_BDP = 4
"""A transfer of fewer BDP is mostly latency, which no factor between models makes smaller."""
RTO_MS = 200
"""Linux's least retransmission timeout (TCP_RTO_MIN)."""


def program_approximations(lab: LiveLab, scenario: Scenario) -> list[str]:
    """Return the sentences, most telling first."""
    traffic = make_traffic(scenario, lab, seed=scenario.repeat.seed)
    k, bdp = lab.plan.k, bdp_bytes(lab, traffic.placement)
    stands = represent(scenario.workload, bdp_bytes=bdp, k=k)
    rto = Duration(round(RTO_MS * 1e6 / k))
    found = [
        "A program of the user's own moved the bytes. Of it, shares of line rate, ratios to an ideal, collisions, and"
        " what a fault costs against a step carry over to the real fabric.",
        _of_computing(stands.padding_s),
        f"Timers are lab time: TCP's retransmission timeout of {RTO_MS} ms is {rto} of the fabric's, so that a loss"
        " looks so much cheaper; what the program gives up after is lab time, too.",
    ]
    if stands.factor != 1.0:
        found.append(
            f"Each byte of a step stands for {stands.factor:,.6g} of the real step: its lab time is the fabric's times"
            f" {k / stands.factor:,.4g}. Latencies are not made smaller by that."
        )
    if stands.bytes_here is not None:
        least = min((step.size_bytes for step in traffic.workload.transfers if not step.scale_up), default=0)
        if least < FEW_BDP * bdp:
            found.append(
                f"A transfer of the stated collective is {least / bdp:.2g} BDP ({least:,} bytes): with so few, latency"
                " decides as much as rate, and a larger model would not meet it so."
            )
    if max(Counter(nic.node for nic in traffic.placement.nics).values()) > 1:
        found.append(
            "Ranks of one host talk through its loopback or memory, at the speed of this machine: that stands for a"
            " scale-up network, and nothing holds it to a rate."
        )
    return found


def _of_computing(padding_s: float) -> str:
    if padding_s:
        return (
            f"The program's own computing is not scaled; a step is given {padding_s:.3g} s (LAB_PAD_S) to wait instead"
            " of computing. Computing and communication overlap only as the program places that wait."
        )
    return (
        "Computing is not scaled: the program looks as if its accelerators were infinitely fast, and how computing and"
        " communication overlap does not carry over."
    )
