"""What `link show` says of a subnet's links."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cli.nodes.link_changes import cut_sentences
from testbed.lab.features.infiniband import live


def test_links_of_the_subnet_that_are_down_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [
        SimpleNamespace(a="leaf1:up1", b="spine1:down1", up=False),
        SimpleNamespace(a="leaf1:up2", b="spine2:down1", up=True),
    ]
    monkeypatch.setattr(live, "LiveSubnet", lambda lab: SimpleNamespace(links=lambda: states))
    lab: Any = SimpleNamespace(model=SimpleNamespace(infiniband=object()))
    assert cut_sentences(lab) == ["leaf1:up1 - spine1:down1 is down"]
    lab.model.infiniband = None
    assert cut_sentences(lab) == [], "another back end has none"
