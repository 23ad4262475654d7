"""Storage targets of the back end on a real lab: hosts reach them by their rails, over the links of the collectives."""

import pytest

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.workload.storage import Checkpoint, generate_checkpoint

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 2000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 2
  spines: 1
  targets: {{flash: {{}}, disk: {{rails: [2]}}}}
networks: {{frontend: {{design: single-switch}}}}
"""
MB = 1_000_000


def test_hosts_and_targets_reach_each_other_and_no_other_network(lab: RunningLab) -> None:
    found = {result.name: result.status for result in check_lab(lab).results}
    assert {"rails", "path mtu", "networks apart"} <= set(found)
    assert set(found.values()) == {CheckStatus.PASS}


def test_a_checkpoint_takes_the_rails_and_the_spine_where_a_target_is_on_another_rail(lab: RunningLab) -> None:
    """The rail-1 NICs of both hosts write to disk, which is on rail 2."""
    choice = Ranks(targets=("disk",))
    ranks = place_ranks(lab.model, lab.plan, choice, seed=1).nics
    names = [f"{nic.node}:{nic.name}" for nic in ranks]
    assert names == [*(f"p1-s1-h{host}:rail{rail}" for host in (1, 2) for rail in (1, 2)), "disk:rail2"]
    workload = generate_checkpoint(Checkpoint(size_bytes=2 * MB, storage=1, writers=(0, 2)), ranks=5)
    before = lab.counters()
    with WorkloadRunner(lab, Transport(kind=TransportKind.NVME_TCP)) as runner:
        result = runner.run(workload, ranks, WorkloadRunOptions(seed=1))
    after = lab.counters()
    assert result.complete, result.failure
    assert [channel.received_bytes for channel in result.channels] == [2 * MB, 2 * MB]

    def sent(node: str, port: str) -> int:
        return after[node, port].tx_bytes - before[node, port].tx_bytes

    for host in ("p1-s1-h1", "p1-s1-h2"):
        assert sent(host, "rail1") > 2 * MB > 4 * sent(host, "rail2")
    assert sent("p1-s1-rail1", "uplink1") > 4 * MB
    assert sent("p1-s1-rail2", "storage2") > 4 * MB
