"""`startup-config`: from where a node's own configuration comes, and what is wrong with it, each with its place."""

import os
from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.model import ConfigText, Lab, StartupConfig
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology

FABRIC = "name: x\nfabric: {design: rail-optimized, segments: 1, hosts: 1, gpus: 1, spines: 1}\n"
STRANGE = """\
! ours
router bgp {{asm}}
 neighbor a interface
exit
router ospf
 network x
frobnicate 7
interface eth1
  ip ospf cost 5
"""
LISTED = """\
topology:
  roles:
    spine:
      startup-config:
        add:
        - debug bgp updates
        - frobnicate
"""
BLOCK = """\
topology:
  roles:
    spine:
      startup-config:
        add: |
          debug bgp updates
          frobnicate
"""
WHOLE = "router bgp 65001\n bgp router-id 172.18.0.1\nexit\n"


def load(folder: Path, text: str, **files: str) -> Lab:
    for name, content in files.items():
        (folder / f"{name}.conf").write_text(content)
    path = folder / "x.yml"
    path.write_text(FABRIC + text)
    return load_topology(path)


def problems(folder: Path, text: str, **files: str) -> list[tuple[str, str, str, str]]:
    """(code, file:line:column without the folder, path, message) of what is wrong."""
    with pytest.raises(SpecError) as caught:
        load(folder, text, **files)
    return [
        (
            one.code,
            one.file.removeprefix(f"{folder}/")
            + (f":{one.position.line}:{one.position.column}" if one.position else ""),
            one.path,
            one.message.replace(str(folder), "FOLDER"),
        )
        for one in caught.value.problems
    ]


def startup(lab: Lab, node: str = "p1-s1-rail1") -> StartupConfig | None:
    return lab.node(node).startup


def test_a_file_is_the_whole_configuration_of_its_node(tmp_path: Path) -> None:
    lab = load(tmp_path, "topology: {nodes: {p1-s1-rail1: {startup-config: leaf.conf}}}\n", leaf=WHOLE)
    place = "topology.nodes.p1-s1-rail1.startup-config"
    assert startup(lab) == StartupConfig(whole=ConfigText(text=WHOLE, place=place, file="leaf.conf"))
    assert [node.name for node in lab.nodes if node.startup] == ["p1-s1-rail1"]


def test_lines_are_added_from_the_outermost_to_the_innermost_and_the_innermost_file_counts(tmp_path: Path) -> None:
    text = """\
topology:
  defaults: {startup-config: {add: "ip nht resolve-via-default", file: all.conf}}
  kinds: {switch: {startup-config: {add_file: more.conf}}}
  roles: {rail: {startup-config: {add: ["router bgp {{asn}}", " timers bgp 5 15"]}}}
  nodes: {p1-s1-rail1: {startup-config: {file: "{{node}}.conf"}}}
"""
    files = {"all": WHOLE, "more": "debug bgp updates\n", "p1-s1-rail1": WHOLE.replace("65001", "65002")}
    lab = load(tmp_path, text, **files)
    leaf, spine = startup(lab), startup(lab, "p1-spine1")
    assert (leaf.whole.file, spine.whole.file) == ("p1-s1-rail1.conf", "all.conf")
    assert [one.text for one in leaf.added] == [
        "ip nht resolve-via-default",
        "debug bgp updates\n",
        "router bgp {{asn}}\n timers bgp 5 15",
    ]
    assert len(spine.added) == 2, "a spine is no rail switch"
    assert startup(lab, "p1-s1-h1") is None, "hosts that do not route take nothing of the defaults"


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        pytest.param("{startup-config: absent.conf}", "unreadable", "x.yml:3:50", id="a file that is not there"),
        pytest.param("{startup-config: ../x.conf}", "outside", "x.yml:3:50", id="above the folder"),
        pytest.param("{startup-config: /etc/passwd}", "outside", "x.yml:3:50", id="elsewhere"),
        pytest.param("{startup-config: link.conf}", "outside", "x.yml:3:50", id="a link that leads elsewhere"),
        pytest.param("{startup-config: .}", "unreadable", "x.yml:3:50", id="a directory"),
        pytest.param("{startup-config: pipe.conf}", "unreadable", "x.yml:3:50", id="a pipe, which nobody writes"),
        pytest.param('{startup-config: "{{host}}.conf"}', "bad-config", "x.yml:3:50", id="an unknown variable"),
        pytest.param("{startup-config: [a.conf]}", "wrong-type", "x.yml:3:50", id="a list"),
        pytest.param('{startup-config: "hostname a\\nexit"}', "wrong-type", "x.yml:3:50", id="lines without a key"),
        pytest.param("{startup-config: {fil: a.conf}}", "unknown-key", "x.yml:3:51", id="a mistyped key"),
        pytest.param("{startup-config: {add: [5]}}", "wrong-type", "x.yml:3:56", id="a number for a line"),
    ],
)
def test_a_wrong_value_has_its_place(tmp_path: Path, text: str, code: str, where: str) -> None:
    (tmp_path / "link.conf").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe.conf")
    found = problems(tmp_path, f"topology: {{nodes: {{p1-s1-rail1: {text}}}}}\n")
    assert [(one[0], one[1]) for one in found] == [(code, where)], found


def test_lines_of_files_are_named_with_line_and_column(tmp_path: Path) -> None:
    wrong = STRANGE
    found = problems(tmp_path, "topology: {kinds: {switch: {startup-config: leaf.conf}}}\n", leaf=wrong)
    place = "topology.kinds.switch.startup-config"
    assert found == [
        ("bad-config", "leaf.conf:2:12", place, "there is no variable 'asm'"),
        ("unknown-command", "leaf.conf:5:1", place, "'router ospf' is for ospfd, which no node of a lab runs"),
        ("unknown-command", "leaf.conf:7:1", place, "no daemon of a lab takes 'frobnicate 7'"),
        ("unknown-command", "leaf.conf:9:3", place, "'ip ospf cost 5' is for ospfd, which no node of a lab runs"),
    ]


def test_lines_of_the_topology_are_named_with_their_entry(tmp_path: Path) -> None:
    listed = LISTED
    assert problems(tmp_path, listed) == [
        (
            "unknown-command",
            "x.yml:9:11",
            "topology.roles.spine.startup-config.add[1]",
            "no daemon of a lab takes 'frobnicate'",
        )
    ]
    block = BLOCK
    [(code, where, _, message)] = problems(tmp_path, block)
    assert (code, where, message) == ("unknown-command", "x.yml:7:14", "line 2: no daemon of a lab takes 'frobnicate'")


def test_a_control_character_is_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, "topology: {kinds: {switch: {startup-config: a.conf}}}\n", a="debug bgp\x00 updates\n")
    assert ("bad-config", "a.conf:1:1") in [(one[0], one[1]) for one in found]


def test_a_host_that_does_not_route_is_refused_under_its_own_name_alone(tmp_path: Path) -> None:
    found = problems(tmp_path, "topology: {nodes: {p1-s1-h1: {startup-config: {add: debug bgp updates}}}}\n")
    assert [(one[0], one[1]) for one in found] == [("startup-of-host", "x.yml:3:31")]
    lab = load(tmp_path, "topology: {kinds: {host: {startup-config: {add: debug bgp updates}}}}\n")
    assert not any(node.startup for node in lab.nodes)


def test_an_unknown_role_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="rail, leaf, spine, super-spine"):
        load(tmp_path, "topology: {roles: {router: {startup-config: a.conf}}}\n", a=WHOLE)


def test_a_file_of_another_folder_is_found_beside_the_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "leaf.conf").write_text(WHOLE)
    assert startup(load(tmp_path, "topology: {roles: {rail: {startup-config: configs/leaf.conf}}}\n")) is not None


def test_hosts_that_route_and_switches_of_other_networks_have_one_too(tmp_path: Path) -> None:
    text = """\
networks: {frontend: {homing: routed, nic: {per: host, ports: 2}}}
topology:
  kinds: {host: {startup-config: {add: debug bgp updates}}}
  roles: {leaf: {startup-config: {add: debug bgp zebra}}}
"""
    lab = load(tmp_path, text)
    told = {node.name: [one.text for one in node.startup.added] for node in lab.nodes if node.startup is not None}
    assert told.pop("p1-s1-h1") == ["debug bgp updates"]
    assert set(told) == {node.name for node in lab.switches if node.role is not None and node.role.value == "leaf"}
    plan = plan_lab(lab, k=1000)
    assert {speaker.node for speaker in plan.speakers if speaker.startup is not None} == {"p1-s1-h1", *told}
