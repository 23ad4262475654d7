"""The scale-up domains of a deployed lab: kept with it, and shown at its time scale."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from testbed.lab.core.model import SCALE_UP_PRESETS

pytestmark = [pytest.mark.netns, pytest.mark.frr]


def test_a_lab_keeps_its_domains_and_shows_them_at_its_own_scale(sandbox: Any) -> None:
    model = replace(sandbox.model(), scale_up=SCALE_UP_PRESETS["nvl72"])
    lab = sandbox.deploy(model, k=2000.0).lab
    shown = json.loads(sandbox.cli("inspect", "scale-up", "-n", lab.name, "-f", "json").stdout)
    assert (shown["k"], shown["stated"], shown["domain"]) == (2000.0, True, "segment")
    hosts = sorted(host for domain in shown["domains"] for host in domain["hosts"])
    assert hosts == sorted(host.name for host in model.hosts)
    assert len(shown["domains"]) == len({host.place.segment for host in model.hosts if host.place})
    assert shown["lab_units"]["gpu_rate_bps"] == 3_600_000_000
    assert shown["lab_units"]["rtt_ns"] == 2_000_000
    scale = sandbox.cli("inspect", "scale", "-n", lab.name).stdout
    assert "scale-up rate of a GPU" in scale
    assert "2 ms" in scale
    assert lab.model.scale_up == model.scale_up
