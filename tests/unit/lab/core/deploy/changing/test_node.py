"""A node that is made anew: what ran in it ends, whatever it was."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.linux import namespaces
from testbed.lab.core.deploy.changing import node as module
from testbed.lab.core.deploy.live import RunningLab

NODE = "p1-s1-h1"


class Stop(Exception):
    """Enough was seen."""


def lab(directory: Path, runtime: str) -> RunningLab:
    found = SimpleNamespace(
        name="lab",
        plan=SimpleNamespace(operations=()),
        state_directory=directory,
        runtime=runtime,
        record=None,
        state=None,
    )
    return cast(RunningLab, found)


@pytest.mark.parametrize(("was", "ended"), [("docker", ["docker", "netns"]), (None, ["netns"])])
def test_a_node_that_something_else_realises_is_ended_as_either(
    was: str | None, ended: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that failed before its container was there: the node is still a namespace, whose processes nobody would
    find again once another namespace has its name."""
    found: list[str] = []

    def end(each: Any, node: str, places: list[str]) -> None:
        assert (node, places) == (NODE, [NODE])
        found.append(each.runtime)

    def stop(*_: object) -> None:
        raise Stop

    monkeypatch.setattr(module, "_end_processes", end)
    monkeypatch.setattr(namespaces, "still_published", stop)
    rebuilding = module._Rebuilding(lab(tmp_path, "netns"), NODE, None, False, lab(tmp_path, was) if was else None)
    with pytest.raises(Stop):
        rebuilding.carry_out(lambda _: None)
    assert found == ended
