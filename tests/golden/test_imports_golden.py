"""Topologies of other tools: imports/NAME.TOOL.yml, and beside it NAME.TOOL.expected, the topology of ours and the
remarks about it. They are of shapes that people publish, with values of our own."""

from dataclasses import replace
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.lab.core.model import Lab, Role
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.formats.containerlab_file import write_containerlab
from testbed.lab.formats.importing import ImportedTopology, import_topology
from testbed.lab.formats.netlab_file import write_netlab

CORPUS = Path(__file__).with_name("imports")
FILES = sorted(CORPUS.glob("*.yml"))
HOME = Path("/home/somebody")


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(HOME))


def imported(path: Path, runtime: str = "docker") -> ImportedTopology:
    return import_topology(
        path.read_text(), path.name, directory=Path("/srv/labs"), runtime=runtime, environment={"USER": "somebody"}
    )


def lab_of(found: ImportedTopology) -> Lab:
    return load_topology_text(found.text, file="imported.yml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_topology_and_its_remarks_are_as_reviewed(path: Path, golden: Golden) -> None:
    found = imported(path)
    remarks = [
        f"{row.line or '-'}: {row.what} ({row.where}) {row.became}: {row.to_do}"
        if row.where
        else f"{row.line or '-'}: {row.what} {row.became}: {row.to_do}"
        for row in found.remarks
    ]
    golden(path.with_suffix(".expected")).check(f"{found.text}\n" + "".join(f"{line}\n" for line in remarks))


@pytest.mark.parametrize("runtime", ["docker", "netns"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_imported_can_be_deployed(path: Path, runtime: str) -> None:
    """The file loads, and every switch with hosts has a route to every other one's."""
    found = imported(path, runtime)
    lab = lab_of(found)
    plan = plan_lab(lab, k=1)
    containers = [node for node in lab.nodes if node.container is not None]
    assert len(containers) == found.containers
    assert runtime == "docker" or not containers
    announced = {prefix for switch in plan.switches for prefix in switch.networks}
    hosts = {link.b.node if link.a.node in {h.name for h in lab.hosts} else link.a.node for link in lab.links}
    for switch in plan.switches:
        if switch.node in hosts and path.stem != "full-mesh.clab":
            known = {route.prefix for route in plan.expected_routes[switch.node]} | set(switch.networks)
            missing = {prefix for prefix in announced if prefix.prefixlen < 32} - known
            assert not missing, (switch.node, missing)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lab_comes_back_from_containerlab_as_it_went(path: Path) -> None:
    lab = lab_of(imported(path))
    back = import_topology(
        write_containerlab(lab, beside="x-files").text,
        "back.clab.yml",
        directory=Path("/"),
        runtime="docker",
        environment={},
    )
    again = lab_of(back)
    assert _graph(again) == _graph(lab)
    for node in (*lab.hosts, *lab.switches):
        other = again.node(node.name)
        assert (other.kind, other.role, dict(other.env), other.exec) == (
            node.kind,
            node.role,
            dict(node.env),
            node.exec,
        )
        if node.container is not None and other.container is not None:
            mine = replace(node.container, image=other.container.image)
            assert other.container == mine


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lab_comes_back_from_netlab_with_its_graph(path: Path) -> None:
    lab = lab_of(imported(path))
    text = write_netlab(lab).text
    back = import_topology(text, "back.yml", directory=Path("/"), runtime="docker", environment={})
    again = lab_of(back)
    assert [node.name for node in again.nodes] == [node.name for node in lab.nodes if not _is_managing(lab, node.name)]
    assert _ends(again) == _ends(lab)


def _is_managing(lab: Lab, name: str) -> bool:
    network = lab.out_of_band
    return (
        network is not None
        and lab.node(name).network == network.name
        and lab.node(name).role is None
        and (lab.node(name).kind.value in ("bridge", "server"))
    )


def _ends(lab: Lab) -> set[tuple[frozenset[str], int]]:
    """The data links by their ends, with their rates."""
    management = lab.out_of_band
    links = [link for link in lab.links if management is None or link.network != management.name]
    return {(frozenset({str(link.a), str(link.b)}), link.rate.bps) for link in links}


def _graph(lab: Lab) -> object:
    """Nodes and data links with all that they have."""
    management = lab.out_of_band
    links = [link for link in lab.links if management is None or link.network != management.name]
    return (
        {(node.name, node.kind, node.role) for node in lab.nodes if node.kind.value in ("host", "switch")},
        {
            (frozenset({str(link.a), str(link.b)}), link.rate.bps, link.mtu_bytes, str(link.prefix), link.delay)
            for link in links
        },
    )


def test_the_corpus_has_both_tools_and_all_tiers() -> None:
    assert {path.name.split(".")[1] for path in FILES} == {"clab", "netlab"}
    roles = {node.role for path in FILES for node in lab_of(imported(path)).switches}
    assert roles >= {Role.LEAF, Role.SPINE, Role.SUPER_SPINE}
