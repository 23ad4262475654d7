"""What MPI's launchers call in the place of ssh: which host and which command they mean."""

import pytest

from testbed.run.launch.remote_shell import RemoteCommand, ShellRefused, find_host, parse_arguments

NODES = ("p1-s1-h1", "p1-s2-h1")
HOSTS = """127.0.0.1 localhost
10.0.1.1 p1-s1-h1 p1-s1-h1.demo rail1.p1-s1-h1
10.0.2.1 rail2.p1-s1-h1
172.30.0.1 shared-172-30-0-1 vlan.p1-s2-rail1 vlan.p1-s2-h1
10.0.9.9 p1-s9-rail1
"""


@pytest.mark.parametrize(
    "words",
    [
        ["p1-s1-h1", "prted", "-x", "a b"],
        ["-x", "p1-s1-h1", "prted", "-x", "a b"],
        ["-q", "-o", "BatchMode=yes", "-p", "22", "root@p1-s1-h1", "prted", "-x", "a b"],
        ["-T", "-oBatchMode=yes", "--", "p1-s1-h1", "prted -x", "a b"],
    ],
)
def test_options_of_ssh_are_passed_over_and_the_command_is_one_line(words: list[str]) -> None:
    assert parse_arguments(words) == RemoteCommand(host="p1-s1-h1", line="prted -x a b")


@pytest.mark.parametrize("words", [[], ["p1-s1-h1"], ["-o", "BatchMode=yes", "p1-s1-h1"]])
def test_a_command_is_needed(words: list[str]) -> None:
    with pytest.raises(ShellRefused, match="no host, or no command"):
        parse_arguments(words)


@pytest.mark.parametrize(
    ("named", "node"),
    [
        ("p1-s2-h1", "p1-s2-h1"),
        ("p1-s1-h1.demo", "p1-s1-h1"),
        ("rail2.p1-s1-h1", "p1-s1-h1"),
        ("10.0.1.1", "p1-s1-h1"),
        ("10.0.2.1", "p1-s1-h1"),
        ("172.30.0.1", "p1-s2-h1"),
    ],
)
def test_a_host_is_found_by_each_of_its_names(named: str, node: str) -> None:
    assert find_host(named, NODES, HOSTS) == node


@pytest.mark.parametrize("named", ["p1-s2-h2", "10.0.9.9", "10.0.7.7", "localhost"])
def test_what_is_no_host_is_refused(named: str) -> None:
    with pytest.raises(ShellRefused, match=f"no host is called '{named}'"):
        find_host(named, NODES, HOSTS)
