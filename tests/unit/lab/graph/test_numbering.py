"""AS numbers and addresses in pictures of a lab."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli.app import app

ROOT = Path(__file__).parents[4]
POD = ROOT / "topologies/demo.yml"
ONE = ROOT / "topologies/single-switch.yml"
LOSSLESS = ROOT / "topologies/rail-qos.yml"


def drawn(topology: Path, kind: str, *options: str) -> str:
    """The picture of a file in text."""
    done = CliRunner().invoke(app, ["graph", "-t", str(topology), "-k", kind, "-o", "-", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_dot_has_them_below_the_names() -> None:
    text = drawn(POD, "dot", "--addresses")
    assert r'label="p1-s1-rail1\nAS 4200002049\nlo 172.18.0.1/32\nbr-rail1 10.0.1.1/24"' in text
    assert r'label="p1-s1-h1\nrail1 10.0.1.2/24\nrail2 10.0.2.2/24"' in text
    assert r'label="p1-spine1\nAS 4200000001\nlo 172.17.0.1/32"' in text
    assert "AS 42" not in drawn(POD, "dot")


def test_mermaid_has_them_below_the_names() -> None:
    assert '["rail1<br>AS 4200002049<br>lo 172.18.0.1/32<br>br-rail1 10.0.1.1/24"]' in drawn(
        POD, "mermaid", "--addresses"
    )


@pytest.mark.parametrize("options", [(), ("--addresses",)])
def test_a_page_has_them_among_what_it_tells_of_a_node(options: tuple[str, ...]) -> None:
    text = drawn(ONE, "html", *options)
    data = json.loads(re.findall(r'<script[^>]*id="lab"[^>]*>(.*?)</script>', text, re.DOTALL)[0])
    labels = {node[0]: node[7] for node in data["nodes"]}
    if not options:
        assert not any(labels.values())
        return
    assert labels["p1-s1-rail1"]["br-rail1"] == "10.0.1.1/28" and labels["p1-s1-rail1"]["br-rail8"] == "10.0.1.113/28"
    assert labels["p1-s1-h1"]["rail8"] == "10.0.1.114/28"


def test_the_numbers_do_not_depend_on_the_name_of_the_lab() -> None:
    plain = drawn(POD, "dot", "--addresses")
    assert drawn(POD, "dot", "--addresses", "-n", "other").replace('"other"', '"demo"') == plain


def test_a_lab_whose_headroom_fits_at_its_own_time_scale_alone_has_them() -> None:
    assert "AS 4200002049" in drawn(LOSSLESS, "dot", "--addresses")
