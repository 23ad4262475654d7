"""What routing daemons run, beside what they were started with: noted, compared, and without secrets."""

import json
from pathlib import Path

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.lab.core.deploy.watch import running_config
from testbed.lab.core.deploy.watch.running_config import (
    Difference,
    await_files,
    compare_configuration,
    note_configurations,
    read_configuration,
)

SAID = """Building configuration...

Current configuration:
!
frr version 8.4.4
frr defaults traditional
!
hostname s1
!
router bgp 65001
 neighbor fabric password 0123secret
 timers bgp 3 9
exit
!
end
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What daemons answer, by their names; one that is not there does not answer."""
    answers = {"bgpd": SAID, "zebra": "hostname s1\n"}

    def ask(directory: Path, daemon: str, command: str) -> str:
        assert command == "write terminal"
        if daemon not in answers:
            raise DriverError(f"{daemon} in {directory.name} does not answer")
        return answers[daemon]

    monkeypatch.setattr(running_config.vty, "ask", ask)
    assert running_config.vty is vty
    return answers


def test_a_configuration_is_its_lines_and_no_secret(said: dict[str, str], tmp_path: Path) -> None:
    found = read_configuration(tmp_path, ("zebra", "bgpd", "lag"))
    assert found == {
        "zebra": ["hostname s1"],
        "bgpd": [
            "hostname s1",
            "router bgp 65001",
            " neighbor fabric password (hidden)",
            " timers bgp 3 9",
            "exit",
            "end",
        ],
    }, "the process of link groups is no daemon of FRR's"


def test_what_differs_from_what_was_noted_is_marked(said: dict[str, str], tmp_path: Path) -> None:
    daemons = {"s1": ("zebra", "bgpd"), "s2": ("ospfd",)}
    note_configurations(tmp_path, daemons)
    running = read_configuration(tmp_path / "s1", daemons["s1"])
    lines, is_known = compare_configuration(tmp_path, "s1", running)
    assert is_known and {line.differs for line in lines} == {Difference.NONE}
    said["bgpd"] = SAID.replace(" timers bgp 3 9", " timers bgp 7 21\n no bgp default ipv4-unicast")
    lines, _ = compare_configuration(tmp_path, "s1", read_configuration(tmp_path / "s1", daemons["s1"]))
    assert [(line.daemon, line.differs.value, line.line) for line in lines if line.differs] == [
        ("bgpd", "-", " timers bgp 3 9"),
        ("bgpd", "+", " timers bgp 7 21"),
        ("bgpd", "+", " no bgp default ipv4-unicast"),
    ]
    assert "0123secret" not in "".join(path.read_text() for path in tmp_path.rglob("s1"))


def test_a_node_that_did_not_answer_is_not_known(said: dict[str, str], tmp_path: Path) -> None:
    note_configurations(tmp_path, {"s2": ("ospfd",)})
    lines, is_known = compare_configuration(tmp_path, "s2", {"ospfd": ["router ospf"]})
    assert not is_known and [(line.differs, line.line) for line in lines] == [(Difference.NONE, "router ospf")]
    (tmp_path / ".etc" / "config" / "s2").write_text(json.dumps({"ospfd": []})[:-1])
    assert not compare_configuration(tmp_path, "s2", {"ospfd": []})[1], "what is damaged is not there"


def test_a_daemon_is_awaited_until_it_has_read_its_file(
    said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def ask(directory: Path, daemon: str, command: str) -> str:
        heard.append(daemon)
        return "hostname s1\n" + ("log timestamp precision 3\n" if heard.count(daemon) == 2 else "")

    monkeypatch.setattr(running_config.vty, "ask", ask)
    monkeypatch.setattr(running_config.vty.time, "sleep", lambda _: None)
    await_files(tmp_path, {"s1": ("zebra", "bgpd", "lag")})
    assert heard == ["zebra", "zebra", "bgpd", "bgpd"]
