"""What networks, tenants of the topology and tenants of a workload did in one run, told apart on a real lab."""

import pytest
from waiting import until

from testbed.api.scenarios import run_on_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.observe.dropped import read_dropped
from testbed.record.record import Outcome

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

TEXT = """name: {name}
scale: {{time: 2000}}
fabric: {{design: rail-optimized, segments: 1, hosts: 4, gpus: 1, spines: 1, routing: {{bfd: "off"}}}}
networks:
  frontend: {{leaves: 1, spines: 1, nic: {{rate: 100G}}, overlay: evpn, guards: on, routing: {{bfd: "off"}}}}
tenants:
  red: {{subnets: {{web: {{prefix: 10.31.0.0/24, nics: ["p1-s1-h1:fe1", "p1-s1-h2:fe1"]}}}}}}
  blue:
    talks_to: {{red: [tcp/80]}}
    subnets: {{web: {{prefix: 10.32.0.0/24, nics: ["p1-s1-h3:fe1", "p1-s1-h4:fe1"]}}}}
"""
BYTES = 200_000
SCENARIO = f"""name: loads
topology: {{file: that-of-the-lab.yml}}
transport: {{kind: tcp}}
workload:
  kind: tenants
  ranks: {{network: frontend, tenant: [red, blue]}}
  tenants:
    - {{name: first, ranks: [0, 1], workload: {{kind: incast, senders: 1, bytes: {BYTES}}}}}
    - {{name: second, ranks: [2, 3], workload: {{kind: incast, senders: 1, bytes: {2 * BYTES}}}}}
expect:
  - {{metric: network_entered, network: frontend, tenant: red, min: {BYTES}, max: {1.15 * BYTES:.0f}, source: headers}}
  - {{metric: network_guarded, network: frontend, tenant: red, min: 1, source: what blue may not ask of red}}
  - {{metric: network_guarded, network: frontend, tenant: blue, max: 0, source: nobody asks anything of blue}}
  - {{metric: network_entered, network: backend, max: 20kB, source: routing alone}}
  - {{metric: tail_fct, tenant: second, min: 5ms, source: 8 times the bytes at 50 Mbit/s}}
"""
ASKING = (
    "import socket, time\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "while True:\n    s.sendto(bytes(100), ('{target}', 9)); time.sleep(0.002)\n"
)


def policy_drops(lab: RunningLab) -> int:
    return sum(packets for (_, _, guard), (packets, _) in read_dropped(lab).items() if guard == "policy")


def test_each_network_and_tenant_has_its_own(lab: RunningLab) -> None:
    """Meanwhile a host of blue asks red for what it may not have."""
    address = next(str(port.address.ip) for port in lab.plan.ports if port.tenant == "red" and port.address)
    asking = lab.spawn("p1-s1-h3", ["python3", "-c", ASKING.format(target=address)])
    try:
        until(lambda: policy_drops(lab) > 0, "the policy stops what blue asks", 10.0)
        record = run_on_lab(lab, SCENARIO).record
    finally:
        asking.kill()
        asking.wait()
    assert {item.metric: item.outcome for item in record.expectations} == {
        "network_entered[network=frontend tenant=red]": Outcome.PASS,
        "network_guarded[network=frontend tenant=red]": Outcome.PASS,
        "network_guarded[network=frontend tenant=blue]": Outcome.PASS,
        "network_entered[network=backend]": Outcome.PASS,
        "tail_fct[tenant=second]": Outcome.PASS,
    }
    (point,) = record.points
    (run,) = point.runs
    frontend = next(network for network in run.networks if network.name == "frontend")
    red, blue = frontend.tenants
    assert (red.name, blue.name, red.ports, blue.ports) == ("red", "blue", 4, 4)
    assert (red.payload_bytes, blue.payload_bytes) == (BYTES, 2 * BYTES)
    assert blue.entered_bytes > 2 * BYTES and red.delivered_bytes > BYTES, "with headers, and what blue asks"
    assert red.entered_frames > BYTES / 1500 and red.busiest_port and red.busiest_utilisation > 0
    assert red.guarded is not None and set(red.guarded) == {"policy"} and blue.guarded == {}
    assert frontend.guarded == red.guarded
    assert frontend.entered_bytes == red.entered_bytes + blue.entered_bytes
    first, second = run.metrics["s_fabric[tenant=first]"], run.metrics["s_fabric[tenant=second]"]
    assert (first, second) == (BYTES, 2 * BYTES)
    assert (run.metrics["jct"] or 0.0) >= max(run.metrics[f"jct[tenant={name}]"] or 0.0 for name in ("first", "second"))
