"""Whatever is in a topology file: a `Lab`, or a `SpecError` with places in the file. Never anything else."""

import json
from pathlib import Path

from hostile_files import FUZZ, assert_well_said, edited, overrides, pieces, values
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.base.errors import SpecError
from testbed.base.yaml.paths import format_path, parse_path
from testbed.base.yaml.reader import decode, load_document
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text

ROOT = Path(__file__).parents[2]
SEEDS = [
    path.read_text()
    for path in sorted((ROOT / "topologies").glob("*.yml"))
    if path.stem
    in {"demo", "dual-switch", "hand-written", "mixed", "qos-overrides", "rail-qos", "single-switch", "shared-nic"}
]
BAD = [path.read_bytes() for path in sorted((ROOT / "tests" / "golden" / "bad").glob("*.yml"))]
SPACED = ["\n", "\n  ", "\t", " ", ": ", "- ", "&a ", "!t ", "\x00", "\x85", "\u2028", "\ufeff"]
WORDS = (
    "{ } [ ] : # *a ' \" | > ? % , << --- ... 0 010 -1 1e9 99999999999 .inf .nan null true off ~ é \U0001f600"
    " name fabric topology nodes links hosts rate delay mtu prefix exec kind host switch 400G 500ns h1:eth1 ../x lo"
    " 10.0.0.0/8 qos preset uec classes rdma weight lossless 0.2bdp 150KB ef auto"
)
TOKENS = st.sampled_from([*SPACED, *WORDS.split()])
KEY_NAMES = (
    "name scale scale.time fabric fabric.design fabric.hosts fabric.gpus fabric.nic fabric.nic.rate"
    " fabric.nic.ports fabric.rails fabric.rails.per_switch fabric.uplink.delay fabric.routing fabric.routing.bfd"
    " fabric.routing.protocol fabric.switch_radix fabric.spines fabric.mtu topology topology.defaults"
    " topology.kinds topology.groups topology.nodes topology.nodes.probe1 topology.nodes.h1"
    " topology.nodes.h1.exec topology.nodes.leaf1.asn topology.links topology.links[0]"
    " topology.links[0].endpoints topology.links[0].endpoints[1] topology.links[0].prefix"
    " qos qos.preset qos.classes qos.classes.rdma qos.classes.x qos.classes.rdma.dscp qos.classes.rdma.weight"
    " qos.classes.rdma.lossless qos.classes.rdma.ecn qos.classes.rdma.ecn.kmin qos.classes.rdma.pfc"
    " qos.classes.rdma.pcp qos.classes.bulk.default qos.classes.bulk.limit qos.buffer qos.buffer.shared"
    " qos.load_balancing qos.watchdog qos.load_balancing.mode qos.base_rtt qos.kinds.host qos.tiers"
    " qos.tiers.spine qos.nodes qos.ports"
)
KEYS = KEY_NAMES.split()


def check(text: str, overrides: dict[str, object] | None = None) -> None:
    try:
        lab = load_topology_text(text, file="fuzz.yml", overrides=overrides)
    except SpecError as error:
        assert_well_said(error, text)
    else:
        assert isinstance(lab, Lab)


@FUZZ
@given(st.text())
def test_any_text(text: str) -> None:
    check(text)


@FUZZ
@given(pieces(TOKENS))
def test_pieces_of_yaml(text: str) -> None:
    check(text)


@FUZZ
@given(st.binary(max_size=300) | st.sampled_from(BAD))
def test_any_bytes(raw: bytes) -> None:
    try:
        text = decode(raw, "fuzz.yml")
    except SpecError as error:
        assert error.problems[0].position is not None
    else:
        check(text)


@FUZZ
@given(edited(SEEDS, TOKENS))
def test_valid_files_with_pieces_replaced(text: str) -> None:
    check(text)


@FUZZ
@given(st.sampled_from(SEEDS), overrides(KEYS, TOKENS))
def test_valid_files_with_values_replaced(text: str, changes: dict[str, object]) -> None:
    check(text, changes)


@FUZZ
@given(st.sampled_from(SEEDS), st.text(max_size=30), values(TOKENS))
def test_any_override(text: str, key: str, value: object) -> None:
    check(text, {key: value})


@FUZZ
@given(st.lists(st.text(max_size=12) | st.integers(0, 999_999), max_size=5).map(lambda parts: ["root", *parts]))
def test_paths_read_back(parts: list[str | int]) -> None:
    path = tuple(parts)
    assert parse_path(format_path(path)) == path


@FUZZ
@given(st.dictionaries(st.text(alphabet="abc", min_size=1, max_size=3), values(TOKENS), max_size=4))
def test_json_is_yaml_and_reads_back(data: dict[str, object]) -> None:
    text = json.dumps(data)
    assume("Infinity" not in text and "NaN" not in text)  # Python's extension of JSON
    try:
        read = load_document(text, "fuzz.yml").data
    except SpecError as error:
        codes = {problem.code for problem in error.problems}
        assert codes <= {"bad-key", "bad-number", "control-character", "duplicate-key", "syntax"}
    else:
        assert json.dumps(read) == text
