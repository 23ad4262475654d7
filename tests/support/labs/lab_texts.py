"""Topologies that differ in a few keys, drawn by hypothesis: what a lab is, and what its file says later."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

from testbed.base.errors import PlanError, SpecError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text

NAME = "x"
Choices = Mapping[str, Sequence[Any]]
"""The values that a key may have, by its dotted path; None is no such key."""

SIZES: Choices = {
    "fabric.hosts": (1, 2, 3),
    "fabric.gpus": (1, 2, 3),
    "fabric.segments": (1, 2),
    "fabric.spines": (1, 2, 3),
    "fabric.uplink.count": (1, 2),
}
WIRES: Choices = {
    "fabric.nic.rate": ("100G", "400G"),
    "fabric.uplink.rate": ("200G", "400G"),
    "fabric.uplink.delay": (None, "1us", {"value": "2us", "jitter": "100ns"}),
    "fabric.mtu": (1500, 4500, 9000),
    "scale.time": (5000, 10000),
}
# Of more paths than it may use a switch takes the oldest, which a lab that is changed has otherwise.
ROUTING: Choices = {"fabric.routing.ecmp": (8, 16, 64), "fabric.routing.ttl_security": (None, True)}
SESSIONS: Choices = {"fabric.routing.protocol": ("ebgp", "ibgp"), "fabric.routing.password": (None, True)}
"""Keys of routing after which sessions have to begin anew."""
QOS: Choices = {
    "qos.preset": ("uec", "nvidia"),
    "qos.buffer.shared": ("64MB", "100MB"),
    "qos.buffer.alpha": (0.25, 0.5),
    "qos.load_balancing.mode": ("flow", "flowlet", "spray"),
    "qos.trimming": (None, False),
    "qos.watchdog": (None, False, {"detect": "200ms", "restore": "200ms"}),
    "qos.classes.extra": (None, {"dscp": [10], "strict": True}, {"dscp": [10, 14], "strict": True, "limit": "100KB"}),
    "qos.classes.calm": (
        None,
        {"dscp": [12], "strict": True, "lossless": True, "ecn": False},
        {"dscp": [12], "strict": True, "ecn": False},
    ),
    "fabric.uplink.loss": (None, "0.1%", "1%"),
}
"""Keys of a lab whose ports have QoS in any case."""
FRONTEND = {"design": "leaf-spine", "leaves": 2, "spines": 1, "nic": {"per": "host", "ports": 1, "rate": "100G"}}
BESIDE: Choices = {
    "networks.frontend": (
        None,
        FRONTEND,
        FRONTEND | {"spines": 2},
        FRONTEND | {"nic": {"per": "host", "ports": 2, "rate": "100G"}},
        FRONTEND | {"qos": {"preset": "uec"}},
    ),
    "networks.storage": (
        None,
        {"design": "leaf-spine", "leaves": 1, "spines": 1, "nic": {"per": "host", "ports": 1, "rate": "200G"}},
    ),
}
MANAGEMENT = {"design": "out-of-band"}
MANAGED: Choices = {
    "networks.management": (
        None,
        MANAGEMENT,
        MANAGEMENT | {"services": ["ssh", "dns"]},
        MANAGEMENT | {"services": ["ssh", "slurm"]},
        MANAGEMENT | {"prefix": "192.168.250.0/24"},
        MANAGEMENT | {"short": "con"},
    ),
    "networks.storage": (
        None,
        {"design": "single-switch", "targets": {"flash": {}}},
        {"design": "single-switch", "targets": {"flash": {"count": 2}}},
    ),
    "fabric.targets": (None, {"disk": {}}, {"disk": {"count": 2}, "tape": {"rails": [1]}}),
}
"""Keys of what nodes are managed by, and of the targets of their storage."""
SCALE_UP: Choices = {
    "fabric.scale_up": tuple(
        {"rate": "3.6T", "by": by, "domain": domain, "planes": planes, "credits": {"limit": limit}}
        for by, domain, planes, limit in (
            ("time", "host", 2, 64),
            ("packets", "host", 2, 64),
            ("packets", "host", 2, 128),
            ("packets", "host", 3, 64),
            ("packets", "segment", 2, 64),
            ("packets", "segment", 3, 64),
        )
    )
}
"""Keys of scale-up domains."""

PLAIN: Choices = {**SIZES, **WIRES, **ROUTING}
WITH_QOS: Choices = {**PLAIN, **QOS}


def text_of(values: Mapping[str, Any], name: str = NAME) -> str:
    """Return the file that says this of a lab: values by dotted keys."""
    document: dict[str, Any] = {"name": name, "fabric": {"design": "rail-optimized", "routing": {"bfd": "off"}}}
    for key, value in values.items():
        if value is None:
            continue
        *above, last = key.split(".")
        place = document
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return yaml.safe_dump(document, sort_keys=False)


def lab_of(values: Mapping[str, Any], name: str = NAME) -> Lab | None:
    """Return the lab of such a file; None where the values do not go together."""
    try:
        return load_topology_text(text_of(values, name), file=f"{name}.yml")
    except (SpecError, PlanError):
        return None


@st.composite
def two_files(draw: st.DrawFn, choices: Choices, *, most: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw the values of a lab, and those of it later, of which up to `most` are others."""
    first = {key: draw(st.sampled_from(list(values))) for key, values in choices.items()}
    changed = draw(st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=most, unique=True))
    second = first | {key: draw(st.sampled_from(list(choices[key]))) for key in changed}
    return first, second


@st.composite
def two_labs(draw: st.DrawFn, choices: Choices, *, most: int = 4) -> tuple[Lab, Lab]:
    """Draw a lab, and what it becomes."""
    pairs = two_files(choices, most=most).map(lambda pair: tuple(map(lab_of, pair)))
    first, second = draw(pairs.filter(lambda pair: None not in pair))
    assert first is not None and second is not None
    return first, second


def random_files(seed: int, choices: Choices, name: str, *, most: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of a lab, and those of it later, that a seed gives; both can be deployed.

    It is for labs that are deployed for real, whose examples nobody makes smaller.
    """
    chance = random.Random(seed)
    while True:
        first = {key: chance.choice(list(values)) for key, values in choices.items()}
        changed = chance.sample(sorted(choices), chance.randint(1, most))
        second = first | {key: chance.choice(list(choices[key])) for key in changed}
        if first != second and all(_fits(lab_of(values, name)) for values in (first, second)):
            return first, second


def _fits(lab: Lab | None) -> bool:
    """Tell whether the lab can be planned: a buffer may be too small for what is lossless."""
    if lab is None:
        return False
    try:
        plan_lab(lab, k=float(lab.scale.time or 1))
    except PlanError:
        return False
    return True
