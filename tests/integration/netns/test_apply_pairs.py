"""To deploy a lab and change it to another is to deploy the other, in all that kernel, FRR and our own files have.

Pairs of topologies are drawn by a seed, which is in the name of the test. The lab that was changed is compared with
one of the same name that was deployed as it is meant to be; back again it is what it was; and a second time nothing is
done.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from lab_snapshot import Snapshot, differences, snapshot
from lab_texts import BESIDE, PLAIN, QOS, SESSIONS, Choices, lab_of, random_files
from odd_pairs import PAIRS, lab_said

from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import LabChanges
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.feature import keep
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]

KINDS: dict[str, Choices] = {
    "plain": PLAIN,
    "sessions": {**PLAIN, **SESSIONS},
    "qos": {**PLAIN, **QOS},
    "networks": {**PLAIN, **BESIDE},
    "all": {**PLAIN, **QOS, **BESIDE},
}
FEW, MANY = 1, 40
"""How many pairs of each kind a test run takes, and a long one."""
FIRST = ("all",)
"""The kind that has everything."""


def _marks(kind: str, seed: int) -> list[pytest.MarkDecorator]:
    if seed >= FEW:
        return [pytest.mark.soak]
    return [] if kind in FIRST else [pytest.mark.thorough]


SEEDS = [
    pytest.param(kind, seed, marks=_marks(kind, seed), id=f"{kind}-{seed}") for kind in KINDS for seed in range(MANY)
]


class Pair:
    """A lab in a sandbox that becomes one thing and another."""

    def __init__(self, sandbox: Any, *, allow: frozenset[Allow] = frozenset()) -> None:
        self._sandbox = sandbox
        self._allow = allow

    def lab(self, values: Mapping[str, Any]) -> Lab:
        lab = lab_of(values, self._sandbox.name())
        assert lab is not None
        return lab

    def running(self) -> RunningLab:
        return self._sandbox.running()

    def deploy(self, lab: Lab) -> Snapshot:
        self._sandbox.deploy(lab, k=lab.scale.time)
        return snapshot(self.running())

    def apply(self, lab: Lab) -> LabChanges:
        try:
            return apply_lab(lab, self._sandbox.state, ApplyOptions(k=lab.scale.time, timeout_s=60, allow=self._allow))
        finally:
            self._sandbox.note_daemons()

    def whole(self) -> None:
        report = check_lab(self.running())
        assert report.exit_code == 0, report

    def destroy(self) -> None:
        self._sandbox.destroy()

    def require_changed(self, first: Lab, second: Lab, what: str) -> None:
        """Deploy the first lab, and change it to the second and back: each time it is the lab that was meant, and a
        second time nothing is done."""
        # Ports between switches have the names that they had first, and a rail keeps its bridge: then it is expected.
        meant = keep(first, second)
        restored = keep(meant, first)
        before = self.deploy(first)
        self.apply(second)
        found = snapshot(self.running())
        self.whole()
        assert not self.apply(second), f"a second time there is nothing to do; {what}"
        assert_alike(snapshot(self.running()), found, f"nothing was done; {what}")
        self.apply(first)
        back = snapshot(self.running())
        self.destroy()
        if restored != first:
            before = self.deploy(restored)
            self.destroy()
        assert_alike(back, before, f"there and back; {what}")
        assert_alike(found, self.deploy(meant), what)


def changed_keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    return "; ".join(f"{key}: {first[key]} -> {second[key]}" for key in first if first[key] != second[key])


def assert_alike(found: Snapshot, meant: Snapshot, what: str) -> None:
    lines = differences(found, meant)
    assert not lines, f"{len(lines)} differences; {what}\n" + "\n".join(line[:600] for line in lines[:40])


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_a_changed_lab_is_the_lab_that_was_meant(sandbox: Any, kind: str, seed: int) -> None:
    pair = Pair(sandbox, allow=frozenset({Allow.RESTART}))  # FRR takes another ASN only when it starts
    first, second = random_files(seed, KINDS[kind], sandbox.name())
    pair.require_changed(pair.lab(first), pair.lab(second), changed_keys(first, second))


@pytest.mark.thorough
@pytest.mark.parametrize("what", PAIRS)
def test_a_lab_becomes_something_quite_different(sandbox: Any, what: str) -> None:
    first, second = (lab_said(document, sandbox.name()) for document in PAIRS[what])
    Pair(sandbox, allow=frozenset({Allow.RESTART})).require_changed(first, second, what)
