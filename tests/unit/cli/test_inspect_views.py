"""The views that `inspect` prints of a deployed lab."""

import inspect
from collections import Counter
from dataclasses import astuple, is_dataclass
from importlib import import_module

import pytest
from fake_lab import small_lab

from testbed.base.errors import TestbedError
from testbed.cli.labs import inspect_views
from testbed.cli.labs.deploy import _bfd_text
from testbed.cli.labs.inspect import inspect as show
from testbed.cli.labs.inspect_views import LIVE_VIEWS, SEEN_VIEWS, NodeRow, chosen_nodes, show_view, unshown_columns
from testbed.cli.labs.scale_view import medium_rows, transport_rows
from testbed.cli.labs.views import VIEWS
from testbed.cli.options import Format
from testbed.cli.output import emit
from testbed.lab.core.fabric.base_rtt import model_base_rtt
from testbed.lab.core.fabric.sizing import measure_sizing
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.graph.management import pictured
from testbed.lab.observe.networks import LiveNetworks, network_rows, scale_up_line, scale_up_summary, total_row


def row(runtime: str = "netns", image: str = "", missing: tuple[str, ...] = ()) -> NodeRow:
    return NodeRow(
        name="n",
        kind="host",
        role="",
        runtime=runtime,
        image=image,
        state="running",
        ipv4_address="",
        addresses=(),
        management="",
        pids={},
        missing=missing,
    )


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([row()], []),
        ([row(), row("docker", "x:1")], ["image"]),
        ([row(), row("trees")], ["runtime"]),
        ([row("docker", "x:1"), row("trees")], ["runtime", "image"]),
        ([row(), row(missing=("bgpd",))], ["missing"]),
    ],
)
def test_nodes_show_what_they_are_where_they_are_more_than_namespaces(
    rows: list[NodeRow], more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    emit(rows, NodeRow, Format.CSV, without=unshown_columns(rows))
    shown = capsys.readouterr().out.splitlines()[0].split(",")
    assert set(shown) == {"name", "kind", "role", "state", "ipv4_address", *more}


def test_both_sides_of_a_medium_are_shown() -> None:
    targets = "flash: {count: 2, medium: {rate: 40G, latency: 80us}}, disk: {medium: {rate: 8G}}, array: {}"
    text = f"""name: media
fabric: {{design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1}}
networks: {{storage: {{targets: {{{targets}}}}}}}
"""
    rows = [astuple(row) for row in medium_rows(load_topology_text(text, file="media.yml"), 20_000)]
    assert rows == [
        ("rate of a medium", "8 Gbit/s", "400 kbit/s", "/ k"),
        ("rate of a medium", "40 Gbit/s", "2 Mbit/s", "/ k"),
        ("latency of a medium", "80 us", "1.6 s", "x k"),
    ]


def test_both_sides_of_what_transports_scale_are_shown() -> None:
    model, plan = small_lab(k=1000.0)
    rows = {row.quantity: (row.fabric, row.lab, row.law) for row in transport_rows(model, plan.k)}
    rtt = model_base_rtt(model)
    assert rows["base round trip"] == (str(rtt), str(rtt.scaled(1000.0)), "x k")
    assert rows["roce, dcqcn nvidia: timer_us"] == ("300 us", "300 ms", "x k")
    assert rows["roce, dcqcn paper: additive_bps"] == ("40 Mbit/s", "40 kbit/s", "/ k")
    assert rows["roce, dcqcn paper: counter_bytes"] == ("10000000 B", "10000000 B", "unchanged")
    assert rows["roce, swift paper: target_rtts"][1] == str(rtt.scaled(1250.0))
    declared = load_topology_text(
        "name: views\nfabric: {design: rail-optimized}\nqos: {base_rtt: 1us}\n", file="views.yml"
    )
    assert next(transport_rows(declared, 1000.0)).fabric == "1 us", "and not what its links take"


def test_a_network_without_sessions_has_no_words_about_bfd() -> None:
    model = load_topology_text(NETWORKS, file="views.yml")
    assert [_bfd_text(model.of_network(name), "") for name in ("backend", "storage")] == [
        "BFD auto: 300 ms x 3 for 1 session",
        "",
    ]


def test_help_names_every_view() -> None:
    with pytest.raises(TestbedError) as refused:
        show_view("nosuch", None, None, None, chosen_nodes(None), Format.TABLE)
    what = show.params[0].metavar
    assert set(refused.value.hint.removeprefix("one of ").split(", ")) == set(what.strip("[]").split("|"))


def test_a_view_that_is_no_table_has_a_function() -> None:
    of_the_verb = {"machines", "qos", "scale-up"}
    assert {view for view, table in VIEWS.items() if table is None} == {*LIVE_VIEWS, *SEEN_VIEWS, *of_the_verb}


@pytest.mark.parametrize("view", [view for view, table in VIEWS.items() if table is not None])
def test_the_rows_of_a_view_are_where_it_says(view: str) -> None:
    table = VIEWS[view]
    module = import_module(f"testbed.lab.{table.module}")
    assert is_dataclass(getattr(module, table.kind))
    assert table.kind in str(inspect.signature(getattr(module, table.rows)).return_annotation)


SUBNET = """name: subnet
fabric: {design: rail-optimized, link_layer: infiniband, segments: 2, hosts: 2, gpus: 1, spines: 1}
"""


def test_a_switch_of_a_subnet_is_a_node_of_its_view_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running:
        """A lab that is up, as far as names of nodes go."""

        name = "subnet"
        model = load_topology_text(SUBNET, file="subnet.yml")

        def node(self, name: str) -> None:
            if name not in {node.name for node in self.model.nodes}:
                raise TestbedError(f"no node {name}")

    shown: list[bool] = []
    monkeypatch.setattr(inspect_views, "open_lab", lambda *_: Running())
    monkeypatch.setitem(LIVE_VIEWS, "ib", lambda _lab, nodes, _form: shown.append(nodes("p1-spine1")))
    show_view("ib", None, None, None, chosen_nodes("p1-spine1"), Format.TABLE, node="p1-spine1")
    assert shown == [True]
    for what, node in (("ib", "p1-spine2"), ("nodes", "p1-spine1")):
        with pytest.raises(TestbedError, match=f"no node {node}"):
            show_view(what, None, None, None, chosen_nodes(node), Format.TABLE, node=node)


NETWORKS = """name: views
scale: {time: 1000}
fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
networks:
  frontend: {leaves: 2, nic: {rate: 100G}, mtu: 9050, overlay: evpn}
  users: {on: frontend, nic: {rate: 50G}}
  storage: {design: single-switch, nic: {rate: 200G}, targets: {flash: {capacity: 1TB, rate: 400G}}}
  management: {design: out-of-band}
tenants:
  red: {subnets: {web: {prefix: 10.9.0.0/24, nics: ["p1-s1-h1:fe1", "p1-s1-h2:fe1"]}}}
"""


def test_all_networks_have_a_row_each_and_one_together() -> None:
    model = load_topology_text(NETWORKS, file="views.yml")
    nic, server = ("p1-s1-h1", "st1"), ("mgmt1", "mgmt0")
    live = LiveNetworks(
        sessions={"backend": 2, "frontend": 7},
        services=[True, False],
        sent_bytes={nic: 1_000, server: 30},
        dropped_packets={nic: 5},
        waiting_bytes={nic: 200, ("st-leaf1", "down1"): 300},
        guarded_packets={server: 2, ("fe-leaf1", "red:to50002"): 3},
    )
    rows = network_rows(model, live, {"backend": 2, "frontend": 8, "users": 0, "storage": 0, "management": 0})
    by_name = {row.network: row for row in rows}
    assert list(by_name) == ["backend", "frontend", "users", "storage", "management"]
    users, storage, management = by_name["users"], by_name["storage"], by_name["management"]
    assert (users.design, users.carried_by, users.switches, users.nics) == ("carried", "frontend", 0, 2)
    assert (storage.hosts, storage.targets, storage.nics, storage.links) == (2, 1, 3, 3)
    assert storage.rates == ["400 Gbit/s", "200 Gbit/s"]
    assert (storage.sent_bytes, storage.dropped_packets) == (1_000, 5)
    assert (storage.queue_bytes, storage.queue_port) == (300, "st-leaf1:down1")
    assert (management.services_up, management.services, management.guarded_packets) == (1, 2, 2)
    assert (by_name["frontend"].guarded_packets, users.guarded_packets) == (3, 0), "policies are the carrier's"
    assert by_name["frontend"].tenants == 1 and by_name["frontend"].sessions_up == 7
    assert not users.tenants and by_name["backend"].queue_port == ""
    total = total_row(model, rows)
    assert (total.hosts, total.targets, total.tenants, total.services) == (2, 1, 1, 2)
    assert (total.sessions_up, total.sessions, total.sent_bytes) == (9, 10, 1_030)
    assert total.links == len(model.links) and total.queue_port == "st-leaf1:down1"


def test_domains_that_a_file_states_are_in_the_view_of_all_networks() -> None:
    plain = load_topology_text(NETWORKS, file="views.yml")
    text = NETWORKS.replace("hosts: 2, gpus: 1", "hosts: 2, gpus: 4, scale_up: {preset: h100}")
    stated = load_topology_text(text, file="views.yml")
    assert (scale_up_line(plain), scale_up_summary(plain)) == ("", None)
    found = scale_up_summary(stated)
    assert {key: found[key] for key in ("domains", "gpus", "planes", "links", "by")} == {
        "domains": 2,
        "gpus": 8,
        "planes": 4,
        "links": 8 * 18,
        "by": "time",
    }
    assert "2 domains, 8 GPUs, 4 planes, 3.6 Tbit/s a GPU each way; transfers by time" in scale_up_line(stated)


IN_BAND = """name: views
fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
networks:
  frontend: {leaves: 2, spines: 1, mtu: 9050, overlay: evpn}
  management: {on: frontend, mtu: 1500, services: [ssh]}
"""


def test_management_in_band_has_its_services_and_its_switches_are_no_fabric() -> None:
    """The rail switch and its spine have ports on leaves of the front end, which are links to what attaches."""
    model = load_topology_text(IN_BAND, file="views.yml")
    rows = {row.network: row for row in network_rows(model, LiveNetworks(services=[True, True]), Counter())}
    assert (rows["management"].nics, rows["management"].services) == (1 + 2 + 2, 2)
    assert rows["frontend"].services == 0
    sizing = measure_sizing(model.on_switches_of("frontend"))
    assert (sizing.links, sizing.host_links, sizing.fabric_links) == (2 + 2 + 5, 2 + 5, 2)
    assert sizing.bisection is not None and sizing.bisection.bandwidth_bps == 100e9
    drawn = pictured(model)
    assert {link.a.node for link in drawn.links if link.network == "management"} == {"mgmt1", "p1-s1-h1", "p1-s1-h2"}
    assert all(link.a.node != "p1-spine1" for link in pictured(model.of_network("management")).links)
