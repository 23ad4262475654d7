"""What the processes of link groups are told when a lab that is up changes: who stays keeps what its partner knows."""

from pathlib import Path

from testbed.daemons.lag.configuration import LagConfiguration
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.mlag.apply import lag_configuration

TEXT = """name: x
fabric: {{design: rail-optimized, segments: 1, hosts: {hosts}, gpus: 1, spines: {spines}}}
networks:
  frontend: {{design: leaf-spine, homing: mlag, leaves: 2, spines: {spines}, nic: {{per: host, ports: 2, rate: 100G}}}}
"""
DIRECTORY = Path("/nowhere")


def configured(*, hosts: int = 3, spines: int = 1, before: LagConfiguration | None = None) -> LagConfiguration:
    lab = load_topology_text(TEXT.format(hosts=hosts, spines=spines), file="x.yml")
    return lag_configuration(plan_lab(lab, k=5000), DIRECTORY, before)


def keys(configuration: LagConfiguration) -> list[dict[str, int]]:
    return [{group.name: group.key for group in leaf.groups} for leaf in configuration.leaves]


def test_the_same_lab_is_told_the_same() -> None:
    before = configured()
    assert configured(before=before) == before
    assert configured() != before, "a deploy makes a secret of its own"


def test_groups_that_stay_keep_their_keys_and_ports() -> None:
    before = configured(hosts=3)
    more = configured(hosts=4, before=before)
    fewer = configured(hosts=3, before=more)
    assert all(old.items() <= new.items() for old, new in zip(keys(before), keys(more), strict=True))
    assert keys(more)[0] == keys(more)[1], "both leaves are one partner of each host"
    assert fewer == before


def test_a_key_that_is_given_up_is_taken_again() -> None:
    four = configured(hosts=4)
    three = configured(hosts=3, before=four)
    again = configured(hosts=4, before=three)
    assert keys(again) == keys(four)


def test_another_host_or_spine_is_nothing_that_needs_a_new_process() -> None:
    before = configured()
    for other in (configured(hosts=4, before=before), configured(spines=2, before=before)):
        assert other != before
        assert [leaf.pair for leaf in other.leaves] == [leaf.pair for leaf in before.leaves]
