"""netlab itself reads what is exported to it, and means by its files what `import` takes them for."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.lab.formats.importing import import_topology
from testbed.lab.formats.netlab_file import write_netlab

pytest.importorskip("netsim", reason="netlab (networklab of PyPI) is not installed")

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[4]
CORPUS = ROOT / "tests" / "golden" / "imports"
NETLAB = Path(sys.executable).with_name("netlab")
EXPORTED = ["hand-written", pytest.param("multi-pod", marks=pytest.mark.thorough), "datacentre"]
PODS = "name: pods\nfabric: {design: rail-optimized, pods: 2, hosts: 1, gpus: 1, spines: 1, super_spines: 1}\n"
"""Three tiers, of as few nodes as netlab reads in seconds."""
REFUSED = ("reflectors.netlab.yml", "unread.netlab.yml")
"""They have keys and values where netlab takes none: ours names each at its line."""
FILES = sorted(set(CORPUS.glob("*.netlab.yml")) - {CORPUS / name for name in REFUSED})


def theirs(text: str, folder: Path) -> Any:
    """The file that netlab writes for containerlab: there is one where it takes the topology, which it validates."""
    (folder / "topology.yml").write_text(text)
    done = subprocess.run(
        [NETLAB, "create", "topology.yml", "-o", "provider"],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    written = folder / "clab.yml"
    assert written.exists(), (done.stdout + done.stderr)[-3000:]
    return yaml.safe_load(written.read_text())


def lab_of(text: str, name: str) -> Lab:
    found = import_topology(text, name, directory=Path("/"), runtime="netns", environment={})
    return load_topology_text(found.text, file="ours.yml")


def ends_of(document: Any) -> set[frozenset[str]]:
    """The links of two nodes of a file of containerlab."""
    found = [link["endpoints"] for link in document["topology"]["links"] if "endpoints" in link]
    return {frozenset(ends) for ends in found if ends[0].split(":")[0] != ends[1].split(":")[0]}


@pytest.mark.parametrize("name", EXPORTED)
def test_netlab_takes_what_is_exported_to_it(name: str, tmp_path: Path) -> None:
    require_taken(load_topology(ROOT / "topologies" / f"{name}.yml"), tmp_path)


def test_netlab_takes_pods(tmp_path: Path) -> None:
    require_taken(load_topology_text(PODS, file="pods.yml"), tmp_path)


def require_taken(lab: Lab, folder: Path) -> None:
    """Require that netlab reads what is exported, and finds the links of the lab."""
    text = write_netlab(lab).text
    data = [link for link in lab.links if lab.out_of_band is None or link.network != lab.out_of_band.name]
    assert ends_of(theirs(text, folder)) == {frozenset({str(link.a), str(link.b)}) for link in data}


@pytest.mark.parametrize("name", REFUSED)
def test_netlab_refuses_what_is_left_out_of_its_corpus(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"Invalid topology attribute|IncorrectValue in links"):
        theirs((CORPUS / name).read_text(), tmp_path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_corpus_is_netlabs_and_what_it_makes_of_it_is_imported(path: Path, tmp_path: Path) -> None:
    document = theirs(path.read_text(), tmp_path)
    lab = lab_of((tmp_path / "clab.yml").read_text(), "clab.yml")
    links = [link for link in lab.links if lab.out_of_band is None or link.network != lab.out_of_band.name]
    assert len(links) == len(ends_of(document))
    if path.name == "leaf-spine.netlab.yml":  # its ports have Linux's names in both, others' a vendor's
        ours = lab_of(path.read_text(), path.name)
        assert {frozenset({str(link.a), str(link.b)}) for link in ours.links} == ends_of(document)
