"""The tools of a host: which command each stands for."""

import pytest

from testbed.lab.features.infiniband.tool import command_of

SETTINGS = {
    "namespace": "/run/netns/lab-infiniband",
    "work": "/run/lab/.infiniband/work",
    "path": "/usr/sbin:/usr/bin",
    "library": "/usr/lib/umad2sim/libumad2sim.so",
    "unprivileged": ["setpriv", "--no-new-privs", "--reuid=65534", "--"],
    "performance": "",
    "hcas": {"h1": {"rail1": "H1", "rail2": "H2"}},
}


def test_a_tool_is_the_machines_own_at_the_hosts_first_hca_as_nobody() -> None:
    command = command_of(SETTINGS, "h1", "ibtracert", ["1", "7"])
    assert command == [
        *("nsenter", "--net=/run/netns/lab-infiniband", "--wd=/run/lab/.infiniband/work", "--"),
        *("setpriv", "--no-new-privs", "--reuid=65534", "--"),
        *("env", "PATH=/usr/sbin:/usr/bin", "LD_PRELOAD=/usr/lib/umad2sim/libumad2sim.so", "SIM_HOST=H1"),
        *("ibtracert", "1", "7"),
    ]


@pytest.mark.parametrize("option", ["-C", "--Ca"])
def test_another_hca_is_chosen_as_with_real_ones(option: str) -> None:
    command = command_of(SETTINGS, "h1", "perfquery", ["-x", option, "rail2", "7", "1"])
    assert "SIM_HOST=H2" in command
    assert command[-4:] == ["perfquery", "-x", "7", "1"]


def test_questions_for_counters_go_to_the_wires_where_there_are_any() -> None:
    assert not any("PERFORMANCE" in word for word in command_of(SETTINGS, "h1", "perfquery", []))
    command = command_of(
        SETTINGS | {"performance": "/run/lab/.infiniband/wires/performance.sock"}, "h1", "perfquery", []
    )
    assert "TESTBED_PERFORMANCE_SOCKET=/run/lab/.infiniband/wires/performance.sock" in command


def test_what_is_no_hca_is_refused() -> None:
    with pytest.raises(ValueError, match="h1 has no HCA mlx5_0: it has rail1, rail2"):
        command_of(SETTINGS, "h1", "ibstat", ["-C", "mlx5_0"])
    with pytest.raises(ValueError, match="this node has no HCA"):
        command_of(SETTINGS, "server1", "ibstat", [])
