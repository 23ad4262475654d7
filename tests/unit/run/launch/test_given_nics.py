"""Ranks that somebody else has placed, and hosts whose ranks are killed."""

import select
import threading

import pytest
from fake_lab import small_lab

from testbed.run.launch.kills import HostKills
from testbed.run.launch.options import LaunchOptions, LaunchRefused
from testbed.run.launch.ranks import place_ranks, process_mapping


def test_ranks_are_where_their_nics_are() -> None:
    model, plan = small_lab()
    nics = {(nic.node, nic.name): nic for host in plan.hosts for nic in host.nics}
    order = [("p1-s1-h1", "rail1"), ("p1-s2-h1", "rail1"), ("p1-s1-h1", "rail2"), ("p1-s2-h2", "rail1")]
    given = tuple(nics[key] for key in order)
    places = place_ranks(model, plan, LaunchOptions(nics=given, ranks_per_host=7, hosts=("nobody",)))
    assert [(place.host, place.nic.name) for place in places] == order
    assert [place.local for place in places] == [0, 0, 1, 0]
    assert [place.hosts_ranks for place in places] == [2, 1, 2, 1]
    assert process_mapping(places) == "(vector,(0,2,1),(0,1,1),(2,1,1))"


def test_a_host_is_killed_while_the_launch_has_ranks_there() -> None:
    with HostKills() as kills:
        with pytest.raises(LaunchRefused, match="h1 runs no rank"):
            kills.kill("h1")
        kills.serve(["h1", "h2"])
        thread = threading.Thread(target=lambda: (kills.kill("h1"), kills.kill("h2")))
        thread.start()
        thread.join()
        assert select.select([kills], [], [], 0)[0] == [kills]
        assert kills.take() == ["h1", "h2"]
        assert select.select([kills], [], [], 0)[0] == [] and kills.take() == []
        kills.serve(())
        with pytest.raises(LaunchRefused):
            kills.kill("h1")
