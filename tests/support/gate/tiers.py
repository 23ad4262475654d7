"""The tiers of the tests: which tests each has by their markers, how they share the machine, how long they may take.

The gate is what CI runs before a change is taken; `./lab test` runs the first tiers of it. The other tiers tell little
more in much more time, and are the parts of `./lab test --everything`.

What needs nothing of the machine must pass. Where a machine that others use can spoil a test, one that fails is run
once more, with the machine to itself (`repeated`), and what fails both times fails: no time on a busy machine decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

CPUS = os.cpu_count() or 1
KERNEL = "netns or frr"
"""Markers of tests that make labs, or parts of them, on this machine."""
APART = "docker or image or vm or labvm or soak or bench or scenarios"
"""Markers of tests that have a tier of their own, whatever else they need."""
PLACES_OF_LABS = ("tests/browser", "tests/contract", "tests/golden", "tests/integration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A run of pytest: the tests with these marks in these directories."""

    name: str
    summary: str
    marks: str
    minutes: float
    """The minutes that it takes on two CPUs that nobody else uses. More than that is a warning."""
    places: tuple[str, ...] = ("tests",)
    """Directories that have tests of these marks: to collect all the others takes most of half a minute."""
    beside: int = 1
    """How many of its files run beside each other."""
    by_group: bool = False
    """True if `side_by_side` says which files those may be."""
    repeated: bool = True
    """True if a test that fails is run once more, alone, before it counts."""
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Return what pytest is told beside the places."""
        told = ["-m", self.marks, *self.options]
        if self.beside > 1:
            told += ["-n", str(self.beside), "--dist", "loadgroup" if self.by_group else "loadfile"]
        return told


PURE_TREES = ("tests/contract", "tests/fuzz", "tests/golden", "tests/property", "tests/unit")

PURE = Tier(
    name="pure",
    summary="what starts no process and needs nothing of the machine",
    marks=f"not (process or {APART} or {KERNEL} or thorough)",
    minutes=4,
    places=PURE_TREES,
    beside=CPUS,
    repeated=False,
)
PROCESS = Tier(
    name="process",
    summary="programs without root: pages of the docs, measuring tools, SSH, ./lab, the wheel, browser",
    marks=f"process and not ({APART} or {KERNEL} or thorough)",
    minutes=3.5,
    beside=CPUS + 1,  # launches wait for each other's ends
)
INTERPRETED = Tier(
    name="interpreted",
    summary="the transports once more as Python runs them: what is compiled must do the same",
    marks=f"not (process or {APART} or {KERNEL} or thorough)",
    minutes=1,
    places=(
        "tests/unit/protocols",
        "tests/unit/endpoints/worker",
        "tests/property/roce",
        "tests/property/uet",
        "tests/property/worker",
    ),
    beside=CPUS,
    repeated=False,
    options=tuple(f"--ignore=tests/unit/protocols/{one}" for one in ("lacp", "scale_up", "simulation")),
    environment={"TESTBED_PURE": "1"},
)
LABS = Tier(
    name="labs",
    summary="labs in network namespaces, beside each other: they wait more than they compute",
    marks=f"({KERNEL}) and not (timed or {APART} or thorough)",
    minutes=9,
    places=PLACES_OF_LABS,
    beside=2 * CPUS,
    by_group=True,
)
TIMED = Tier(
    name="timed",
    summary="labs that measure: ports, pauses, rates, shares",
    marks=f"({KERNEL}) and timed and not ({APART} or thorough)",
    minutes=3,
    places=PLACES_OF_LABS,
)
VM = Tier(
    name="vm",
    summary="a full kernel in the lab VM, and another release of Debian",
    marks="vm and not (bench or soak or thorough)",
    minutes=5,
    places=("tests/integration/vm",),
    beside=2,
    by_group=True,
)
VM_AND_INTERPRETED = Tier(
    name="vm+interpreted",
    summary="both of these: the lab VM is one process and two threads of an emulator, which leave a CPU half idle",
    marks=f"({VM.marks}) or ({INTERPRETED.marks})",
    minutes=4.5,
    places=(*VM.places, *INTERPRETED.places),
    beside=2,
    by_group=True,
    options=INTERPRETED.options,
    environment=INTERPRETED.environment,
)
DOCKER = Tier(
    name="docker",
    summary="nodes that are containers, and labs in one",
    marks="docker and not (bench or soak or thorough)",
    minutes=6,
    places=("tests/integration/docker",),
)
LABS_AND_DOCKER = Tier(
    name="labs+docker",
    summary="both of these, and the image of the lab VM, beside each other: containers have a process of their own",
    marks=f"({LABS.marks}) or ({DOCKER.marks}) or (image and not (bench or soak or thorough))",
    minutes=11,
    places=PLACES_OF_LABS,
    beside=LABS.beside + 1,
    by_group=True,
)
SCENARIOS = Tier(
    name="scenarios",
    summary="shipped scenarios, run to their verdicts",
    marks="scenarios and not (bench or soak or thorough)",
    minutes=1.5,
    places=("tests/integration/scenarios",),
)


def quick(tier: Tier, minutes: float) -> Tier:
    """Return the tier without what the gate alone has."""
    return replace(tier, marks=f"({tier.marks}) and not gate", minutes=minutes)


FIRST: tuple[Tier, ...] = (PURE, quick(PROCESS, 2), quick(LABS, 5))
"""`./lab test`."""
GATE: tuple[Tier, ...] = (PURE, PROCESS, LABS_AND_DOCKER, TIMED, VM_AND_INTERPRETED, SCENARIOS)
"""`./lab test --all`, which CI runs."""

PARTS: tuple[Tier, ...] = (
    Tier(
        name="bench",
        summary="figures as ratios to a floor or a peer in the same run",
        marks="bench",
        minutes=60,
        places=("tests/bench",),
    ),
    Tier(
        name="long-pure",
        summary="simulations, properties and pages of the docs that take long",
        marks=f"thorough and not ({APART} or {KERNEL})",
        minutes=15,
        beside=CPUS,
    ),
    Tier(
        name="long-labs",
        summary="labs that take long",
        marks=f"({KERNEL}) and thorough and not ({APART})",
        minutes=45,
        places=PLACES_OF_LABS,
    ),
    Tier(
        name="all-scenarios",
        summary="all other shipped scenarios that can run on this machine",
        marks="scenarios and thorough",
        minutes=40,
        places=("tests/integration/scenarios",),
    ),
    Tier(
        name="long-docker",
        summary="containers: what takes long",
        marks="docker and thorough and not (bench or soak)",
        minutes=20,
        places=("tests/integration/docker",),
    ),
    Tier(
        name="long-vm",
        summary="the lab VM, other releases and `vagrant up`: what takes long",
        marks="(vm or image) and thorough",
        minutes=30,
        places=("tests/integration/vm",),
        beside=2,
        by_group=True,
    ),
    Tier(
        name="labvm",
        summary="whole scenarios and pages of the docs in the lab VM",
        marks="labvm",
        minutes=60,
        places=("tests/integration/vm",),
    ),
    Tier(
        name="soak",
        summary="long repetition: hostile packets, killed deploys",
        marks="soak",
        minutes=60,
        places=("tests/fuzz", "tests/integration", "tests/property"),
        beside=2,
        by_group=True,
    ),
)
"""The tiers that `./lab test --everything` runs after the gate."""

BY_NAME: Mapping[str, Tier] = {tier.name: tier for tier in (*GATE, INTERPRETED, LABS, VM, DOCKER, *PARTS)}
WITHOUT_ROOT = frozenset({PURE.name, PROCESS.name, INTERPRETED.name, "long-pure"})
"""Tiers that need no root."""
