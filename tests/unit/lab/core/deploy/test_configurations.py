"""What vtysh and daemons say of a node's own configuration is a problem of the place where the line stands."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.errors import CapabilityError, DriverError, PlanError, SpecError
from testbed.lab.core.deploy import configurations
from testbed.lab.core.deploy.configurations import refused_lines, require_configurations, require_taken
from testbed.lab.core.drivers.routing import vtysh
from testbed.lab.core.drivers.routing.vtysh import Complaint, check_commands, parse_complaints
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import ConfigText, Lab, StartupConfig
from testbed.lab.core.plan.lab import plan_lab

SAID = """\
% Can't open configuration file /etc/frr/vtysh.conf due to 'No such file or directory'.
line 3: % Unknown command[47]:  neighbour a remote-as 1

line 9: % Command incomplete[47]:  neighbor a

line 10: % Ambiguous command[5]: ip

"""
INLINE = ConfigText(text="router bgp 1\n frobnicate\n", place="topology.roles.rail.startup-config.add")
OF_FILE = ConfigText(
    text="router bgp 1\n\n  frobnicate {{node}}\n", place="topology.kinds.switch.startup-config", file="a.conf"
)


def configured(*added: ConfigText) -> Lab:
    params = FabricParams(design="rail-optimized", segments=1, hosts=1, gpus=2, spines=1)
    lab = replace(generate_fabric(params, name="x"), source="labs/x.yml")
    startup = StartupConfig(added=added)
    return replace(
        lab,
        nodes=tuple(
            replace(node, startup=startup) if node.name.startswith("p1-s1-rail") else node for node in lab.nodes
        ),
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that vtysh is asked about. It knows no command `frobnicate`."""
    texts: list[str] = []

    def check(text: str) -> list[Complaint]:
        texts.append(text)
        lines = enumerate(text.splitlines(), 1)
        return [Complaint(number, "no such command") for number, line in lines if "frobnicate" in line]

    monkeypatch.setattr(configurations, "check_commands", check)
    monkeypatch.setattr(configurations, "has_vtysh", lambda: True)
    return texts


def test_what_vtysh_prints_is_read() -> None:
    assert parse_complaints(SAID) == [
        Complaint(3, "FRR has no such command here"),
        Complaint(9, "the command is not complete"),
        Complaint(10, "ambiguous command"),
    ]


def test_a_lab_that_says_nothing_of_frr_asks_nobody(asked: list[str]) -> None:
    require_configurations(generate_fabric(FabricParams(design="rail-optimized", hosts=1, gpus=1), name="x"))
    assert asked == []


def test_what_many_nodes_share_is_asked_about_once(asked: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        require_configurations(configured(OF_FILE))
    assert len(asked) == 1
    assert asked[0] == "router bgp 1\n frobnicate node\nexit\n"
    [problem] = caught.value.problems
    assert str(problem).startswith("labs/a.conf:3:3: bad-config: topology.kinds.switch.startup-config: no such command")


def test_a_line_of_the_topology_is_a_problem_of_its_key(asked: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        require_configurations(configured(INLINE))
    assert caught.value.field == INLINE.place
    assert caught.value.message == "line 2: no such command: frobnicate"


def test_a_password_is_not_said_again(asked: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        require_configurations(
            configured(replace(INLINE, text="router bgp 1\n neighbor a password secret frobnicate\n"))
        )
    assert "secret" not in str(caught.value)


def test_good_lines_pass(asked: list[str]) -> None:
    require_configurations(configured(replace(INLINE, text="debug bgp updates")))
    assert asked == ["debug bgp updates\n"]


def test_without_vtysh_nothing_is_checked_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtysh.shutil, "which", lambda _: None)
    with pytest.raises(CapabilityError, match="vtysh"):
        check_commands("debug bgp updates\n")
    with pytest.raises(CapabilityError, match="vtysh"):
        require_configurations(configured(INLINE))
    require_configurations(configured(INLINE), unless_missing=True)


def test_what_a_daemon_did_not_take_is_found_in_its_log(tmp_path: Path) -> None:
    plan = plan_lab(configured(INLINE), k=1000)
    for node in ("p1-s1-rail1", "p1-spine1"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "bgpd.log").write_text(
            "2026/11/29 01:00:00 BGP: ERROR: No such command on config line 12: neighbor a password secret\n" * 2
            + "2026/11/29 01:00:00 BGP: all is well\n"
        )
    said = "bgpd: ERROR: No such command on config line 12: neighbor a password (hidden)"
    assert list(refused_lines(tmp_path / "p1-s1-rail1")) == [said]
    with pytest.raises(DriverError) as caught:
        require_taken(plan.speakers, tmp_path)
    assert f"p1-s1-rail1: {said}" in caught.value.message
    assert "p1-spine1" not in caught.value.message, "it has nothing of its own"
