"""A feature stands in few packages, as the names of files and folders tell: who changes it knows where to look."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 4
FEATURES = {
    "scale-up": r"scale_?up|gpus?|nvlink|inside_(packets|pool|switch)",
    "overlay": r"overlay|evpn|vxlan|vteps?|keeper",
    "QoS": r"qos|traffic_class|mark(er|ing)s?|pfc|ecn|watchdog",
}
"""What names of files and folders have in them, between underscores or at their ends."""


def modules() -> list[str]:
    """Return the paths of all modules, below `testbed`."""
    return [str(path.relative_to(ROOT / "testbed")) for path in (ROOT / "testbed").rglob("*.py")]


def packages_of(words: str, paths: Iterable[str]) -> set[str]:
    """Return the packages that have a module, or a folder of modules, with such a name."""
    named = re.compile(rf"(?<![a-z])({words})(?![a-z])")
    return {package for package, _, rest in (path.partition("/") for path in paths) if named.search(rest)}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_stands_in_few_packages(feature: str) -> None:
    found = packages_of(FEATURES[feature], modules())
    assert "lab" in found
    assert len(found) <= MOST, f"{feature} stands in {', '.join(sorted(found))}: a part of it belongs to one of them"


@pytest.mark.parametrize(
    ("feature", "path"),
    [
        ("scale-up", "record/captures/decoders/scale_up.py"),
        ("scale-up", "workload/scale_up_loads/curves.py"),
        ("overlay", "cli/labs/tenant_vteps.py"),
        ("QoS", "record/marking_curves.py"),
    ],
)
def test_another_place_would_be_found(feature: str, path: str) -> None:
    package = path.partition("/")[0]
    assert package in packages_of(FEATURES[feature], [*modules(), path])
    assert package not in packages_of(FEATURES[feature], modules())
