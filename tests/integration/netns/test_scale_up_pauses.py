"""The PFC of a scale-up switch beside that of the kernel's ports: the same frames, thresholds and load through both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paused_incast import IDEAL_S, Thresholds, differences, through_domain, through_ports

from testbed.protocols.scale_up.domain.link import FlowControl

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]


def test_pauses_of_both_switches_do_the_same(sandbox: Any, tmp_path: Path) -> None:
    """They part where the one has another XOFF, or no pauses at all."""
    same = Thresholds()
    ports = through_ports(sandbox, same)
    print(f"ports of the kernel: {ports}")
    found = {}
    for name, thresholds, control in (
        ("the same", same, FlowControl.PFC),
        ("another XOFF", Thresholds(xoff=48, xon=36, headroom=40), FlowControl.PFC),
        ("no PFC", same, FlowControl.NONE),
    ):
        (tmp_path / name).mkdir()
        domain = through_domain(tmp_path / name, thresholds, control)
        found[name] = differences(ports, domain)
        print(f"switch of a domain, {name}: {domain}; apart: {found[name]}")
    assert ports.dropped == 0 and ports.took_s / IDEAL_S < 1.08
    assert found["the same"] == []
    assert "largest buffer" in found["another XOFF"]
    assert "drops" in found["no PFC"]
