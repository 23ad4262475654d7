"""What a simulated run does not reproduce of the fabric it models, said in sentences for the report."""

from __future__ import annotations

from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Scenario
from testbed.run.simulated.fabric import NIC_JITTER_PACKETS, OVERHEAD_BYTES
from testbed.run.transports.registry import transport_on


def simulated_approximations(lab: LiveLab, scenario: Scenario) -> list[str]:
    """One sentence each, most telling first."""
    found = [
        "Simulated at k = 1: packets, queues and links are events of a program; nothing of this machine's kernel, and"
        " none of its routing daemons, takes part.",
        f"A datagram costs a port its payload and {OVERHEAD_BYTES} bytes of headers, as in an emulated lab: no"
        " preamble, checksum and gap.",
        f"A packet leaves its NIC up to {NIC_JITTER_PACKETS:.0%} of a full packet's time late, at random, so that hosts"
        " which begin together do not stay in step.",
        "Routes are those that BGP is planned to have converged to, and never change.",
    ]
    qos = lab.plan.qos
    if qos is None:
        found.append("Switch queues are plain tail-drop at line rate: no ECN marking, no PFC pause, no shared buffer.")
    else:
        found.append("An ASIC's cells, pipeline latency and memory banks are not modelled.")
        if any(item.lossless for profile in qos.profiles for item in profile.classes):
            found.append(
                "Pauses overtake all that waits, and are obeyed as they arrive; a MAC may take 1.2 us at 400 Gbit/s."
            )
        if any(buffer.watchdog_detect_ns for buffer in qos.buffers):
            found.append("The PFC watchdog does not act: a deadlock of pauses ends the run.")
    found += transport_on(lab, scenario.transport).approximations()
    found.append("ECMP picks by a seeded hash of our own, not by a switch ASIC's.")
    return found
