"""Networks that another one carries, as they are generated: on which leaf each host is, and what cannot be built."""

from dataclasses import replace

import pytest

from testbed.base.errors import FabricError
from testbed.lab.core.fabric.carried import carry_network, check_carried
from testbed.lab.core.fabric.networks import NetworkParams, generate_network
from testbed.lab.core.model import BACKEND, Lab, Node, NodeKind, Role

HOSTS = tuple(f"h{number}" for number in range(1, 6))
FRONTEND = NetworkParams(name="frontend", number=1, leaves=4, ports=2, hosts=HOSTS[:4])
STORAGE = NetworkParams(name="storage", number=2, hosts=HOSTS, carrier="frontend")


def lab(frontend: NetworkParams = FRONTEND) -> Lab:
    made = generate_network(frontend)
    hosts = tuple(Node(name=name, kind=NodeKind.HOST) for name in HOSTS)
    return Lab(name="conv", nodes=(*hosts, *made.nodes), links=made.links, networks=(made.network,))


def wiring(params: NetworkParams) -> list[tuple[str, str]]:
    return [(str(link.a), str(link.b)) for link in carry_network(params, lab()).links]


def test_a_host_is_on_a_leaf_that_it_is_on_already_and_a_stranger_on_an_empty_one() -> None:
    """h1 and h2 are on the first two leaves, h3 and h4 on the others; h5 is not in the front end."""
    assert wiring(STORAGE) == [
        ("h1:st1", "fe-leaf1:st-down1"),
        ("h2:st1", "fe-leaf2:st-down1"),
        ("h3:st1", "fe-leaf3:st-down1"),
        ("h4:st1", "fe-leaf4:st-down1"),
        ("h5:st1", "fe-leaf1:st-down2"),
    ]


def test_a_host_more_moves_no_other_one() -> None:
    assert wiring(STORAGE)[:4] == wiring(replace(STORAGE, hosts=HOSTS[:4]))


def test_a_network_of_management_has_switches_and_targets_too_but_its_carriers_own() -> None:
    """The server first, then hosts; what is in no network of the carrier goes to the emptiest leaf."""
    whole = lab()
    spare = Node(name="rail1", kind=NodeKind.SWITCH, role=Role.RAIL, network=BACKEND)
    target = Node(name="flash", kind=NodeKind.STORAGE, network="disks")
    managed = replace(whole, nodes=(*whole.nodes, spare, target))
    params = replace(STORAGE, name="management", server="mgmt1")
    links = carry_network(params, managed).links
    assert [link.a.node for link in links] == ["mgmt1", *HOSTS, "rail1", "flash"]
    assert [str(link.b) for link in links[-2:]] == ["fe-leaf3:mg-down2", "fe-leaf4:mg-down2"]
    assert [link.a.node for link in carry_network(replace(params, server=""), managed).links] == [*HOSTS]


@pytest.mark.parametrize(
    ("change", "key", "code"),
    [
        ({"hosts": ()}, "hosts", "no-hosts"),
        ({"carrier": "users"}, "on", "no-leaves"),
        ({"short": "long-names"}, "short", "bad-name"),
        ({"short": "fe"}, "short", "name-taken"),
    ],
)
def test_what_cannot_be_built_names_its_key(change: dict[str, object], key: str, code: str) -> None:
    params = replace(STORAGE, **change)  # type: ignore[arg-type]
    assert [(fault.field, fault.code) for fault in check_carried(params, lab())] == [(key, code)]
    with pytest.raises(FabricError):
        carry_network(params, lab())
