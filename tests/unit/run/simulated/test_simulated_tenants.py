"""Tenants on the simulator: VXLAN's bytes between leaves, and transports of their own."""

import pytest

from testbed.record.record import Outcome, Record
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

TENANTS = """
name: tenants
topology:
  inline:
    name: tenants
    fabric:
      design: rail-optimized
      segments: 2
      hosts: 2
      gpus: 1
      spines: 2
      nic: {rate: 400G}
      uplink: {rate: 800G}
      overlay: evpn
    tenants:
      red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s2-h1:rail1"]}}EXTERNAL}
transport: {kind: uet, cc: none}
workload: {kind: point-to-point, bytes: 1MB, ranks: RANKS}
repeat: {runs: 1, seed: 3}
expect:
  - {metric: retransmits, max: 0, source: "one flow"}
"""


def run(text: str) -> Record:
    outcome = run_simulated(read_sweep(text, {}), RecordOptions(), processes=1)
    assert outcome.failure is None, outcome.failure
    return outcome.record


def test_vxlan_adds_its_bytes_between_leaves_alone() -> None:
    found = {}
    for name, ranks in (("red", "{tenant: red}"), ("none", "{hosts: [p1-s1-h2, p1-s2-h2]}")):
        record = run(TENANTS.replace("RANKS", ranks).replace("EXTERNAL", ""))
        assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons
        [one] = record.points[0].runs
        assert all(check.ok for check in one.checks)
        found[name] = {
            tier: (sum(port.tx_bytes for port in one.ports if port.tier == tier))
            for tier in ("access", "uplink", "delivery")
        }
    packets = 1_000_000 / 4096
    assert found["red"]["access"] == pytest.approx(found["none"]["access"], rel=1e-3)
    assert found["red"]["delivery"] == found["red"]["access"]
    more = found["red"]["uplink"] - found["red"]["access"]
    assert more % 50 == 0 and more / 50 > packets, "data and answers"
    assert found["none"]["uplink"] == found["none"]["access"]


SEVERAL = """
name: several
topology:
  inline:
    name: several
    scale: {time: 20000}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 1, nic: {rate: 100G}, routing: {bfd: off}}
    qos: {preset: uec, base_rtt: 5us}
    networks:
      frontend: {design: leaf-spine, leaves: 2, spines: 1, nic: {per: host, ports: 1, rate: 50G}, routing: {bfd: off}}
transports:
  back-end: {kind: uet, cc: nscc}
  front-end: {kind: tcp}
workload:
  kind: tenants
  ranks: {network: [backend, frontend]}
  tenants:
    - {name: training, ranks: [0, 1, 2, 3], transport: back-end, workload: {kind: all-reduce, bytes: 1MB}}
    - {name: users, ranks: [4, 7], transport: front-end, workload: {kind: point-to-point, bytes: 300kB}}
repeat: {runs: 1, seed: 3}
expect:
  - {metric: wrong, max: 0, source: every element is compared}
"""


def test_each_tenant_has_its_transport_and_its_network() -> None:
    record = run(SEVERAL)
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons
    [one] = record.points[0].runs
    assert all(check.ok for check in one.checks), [check.message for check in one.checks if not check.ok]
    assert record.points[0].lab.k == 20_000, "TCP has the kernel's timers"
    channels = {(channel.source_rank, channel.destination_rank): channel for channel in one.channels}
    assert channels[4, 7].source.interface.startswith("fe") and channels[4, 7].received_bytes >= 300_000
    assert {pair for pair in channels if pair[0] < 4} == {(0, 1), (1, 2), (2, 3), (3, 0)}
    loads = {network.name: network for network in one.networks}
    assert 300_000 < loads["frontend"].delivered_bytes < 330_000
    shares = one.metrics["jct[tenant=users]"]
    assert shares is not None and shares > 300_000 * 8 / (50e9 / 20_000)


def test_a_router_outside_is_a_rank_as_others_are() -> None:
    text = TENANTS.replace(
        "EXTERNAL", ", external: {leaf: p1-s2-rail1, asn: 64999, prefixes: [198.51.100.0/24], rate: 40G}"
    )
    text = text.replace("RANKS", "{tenant: red, external: red, hosts: [p1-s1-h1]}").replace(
        "kind: uet, cc: none", "kind: tcp"
    )
    record = run(text)
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons
    [one] = record.points[0].runs
    assert all(check.ok for check in one.checks) and one.transfers.end_s[0] is not None
