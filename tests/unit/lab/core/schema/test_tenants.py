"""Tenants of a topology file: what is in them, and the numbers that the file leaves to the rule."""

from __future__ import annotations

import pytest

from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.schema.load import load_topology_text

HEAD = """
name: pod
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 2
  spines: 2
  nic: {rate: 100G}
"""
TENANTS = """
tenants:
  red:
    subnets:
      web: {prefix: 10.1.0.0/24, hosts: [p1-s1-h1]}
      db: {prefix: 10.1.1.0/24, vni: 10102, nics: ["p1-s1-h2:rail1"]}
  blue:
    vni: 77
    route_target: "64999:5"
    subnets:
      web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h2:rail2"]}
"""


def load(text: str, **overrides: object) -> Lab:
    return load_topology_text(text, file="pod.yml", overrides=overrides)


@pytest.mark.parametrize("overlay", ["evpn", "{evpn: {}}", "{evpn: }"])
def test_an_overlay_without_tenants_changes_no_link(overlay: str) -> None:
    lab = load(f"{HEAD}  overlay: {overlay}\n")
    assert lab.overlay is not None
    assert (lab.overlay.mtu_bytes, lab.overlay.tenants) == ({BACKEND: 4450}, ())
    assert lab.links == load(HEAD).links


@pytest.mark.parametrize("overlay", ["", "  overlay: none\n"])
def test_without_an_overlay_there_is_none(overlay: str) -> None:
    assert load(f"{HEAD}{overlay}").overlay is None


def test_a_number_that_is_taken_is_passed_over() -> None:
    overlay = load(f"{HEAD}  overlay: evpn\n{TENANTS}", **{"tenants.blue.vni": 50001}).overlay
    assert overlay is not None
    assert [tenant.vni for tenant in overlay.tenants] == [50002, 50001]


@pytest.mark.parametrize("rd", ["65000:4294967295", "4294967295:65535", "192.0.2.1:65535", "0065000:007"])
def test_a_route_distinguisher_has_one_of_three_forms(rd: str) -> None:
    text = f"{HEAD}  overlay: evpn\n{TENANTS}".replace("  red:\n", f'  red:\n    rd: {{p1-s1-rail1: "{rd}"}}\n')
    overlay = load(text).overlay
    assert overlay is not None
    assert overlay.tenants[0].rds == {"p1-s1-rail1": rd.lstrip("0").replace(":00", ":")}
    assert decode_lab(encode_lab(load(text))) == load(text)
