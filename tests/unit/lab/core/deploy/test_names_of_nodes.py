"""A node or an interface that a lab does not have: which may be meant, and which there are."""

from pathlib import Path
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.lab.core.deploy.live import NoSuchNode, RunningLab
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.state import StateDirectory


@pytest.fixture
def lab(tmp_path: Path) -> RunningLab:
    model, plan = small_lab(hosts=2, rails=2, spines=1)
    keys: dict[str, Any] = {"version": "1", "created": "", "source": "", "directory": "", "model": {}}
    found = RunningLab(LabRecord(name=model.name, slot=0, k=1.0, **keys), StateDirectory(tmp_path, tmp_path))
    found.__dict__.update(model=model, plan=plan)
    return found


@pytest.mark.parametrize(
    ("node", "interface", "message", "hint"),
    [
        ("h1", None, "fake has no node 'h1'", "did you mean p1-s1-h1 or p1-s2-h1? there are p1-s1-h1, p1-s1-h2,"),
        ("p1-s1-rial1", None, "no node 'p1-s1-rial1'", "did you mean p1-s1-rail1? there are "),
        ("zzz", None, "no node 'zzz'", "there are p1-s1-h1, "),
        ("p1-s1-h1", "eth0", "p1-s1-h1 has no interface 'eth0'", "there are p1-s1-h1:rail1 and p1-s1-h1:rail2"),
        ("p1-s1-h1", "rial1", "no interface 'rial1'", "did you mean p1-s1-h1:rail1? there are p1-s1-h1:rail1 and"),
        ("p1-s1-h1", "", "p1-s1-h1 is a node: name an interface", "there are p1-s1-h1:rail1 and p1-s1-h1:rail2"),
        ("h1", "rail1", "no node 'h1'", "did you mean p1-s1-h1 or p1-s2-h1?"),
    ],
)
def test_a_name_that_is_not_there(lab: RunningLab, node: str, interface: str | None, message: str, hint: str) -> None:
    with pytest.raises(NoSuchNode) as raised:
        lab.node(node) if interface is None else lab.port(node, interface)
    assert message in raised.value.message
    assert (raised.value.hint or "").startswith(hint)


def test_names_that_are_there(lab: RunningLab) -> None:
    assert lab.node("p1-s1-h1").name == "p1-s1-h1"
    assert lab.port("p1-s1-h1", "rail2").name == "rail2"
