"""Whatever is in a file that is imported: a topology that loads, or a refusal with places in the file."""

from pathlib import Path

from hostile_files import FUZZ, assert_well_said, edited, pieces
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import SpecError
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.formats.importing import import_topology

SEEDS = [path.read_text() for path in sorted((Path(__file__).parents[1] / "golden" / "imports").glob("*.yml"))]
SPACED = ["\n", "\n  ", "\t", " ", ": ", "- ", "&a ", "*a", "<<: ", "!t ", "\x00", "\u2028", "\ufeff", "${", "}", "$"]
WORDS = (
    "{ } [ ] : # ' \" | > ? , --- 0 -1 1e9 99999999999 .inf null true ~ \U0001f600 name topology nodes links kinds"
    " defaults groups kind linux bridge host frr nokia_srlinux image binds exec env endpoints endpoint type veth"
    " dummy vxlan mgmt-net macvlan r1 r1-r2 h1:eth1 ../x lo interfaces device role module plugin fabric.spines prefix"
    " 10.0.0.0/8 192.0.2.0/24 bandwidth tc lag members group labels mtu cpu memory 512mb"
)
TOKENS = st.sampled_from([*SPACED, *WORDS.split()])


def check(text: str) -> None:
    for runtime in ("docker", "netns"):
        try:
            found = import_topology(text, "fuzz.yml", directory=Path("/srv"), runtime=runtime, environment={"A": "b"})
        except SpecError as error:
            assert_well_said(error, text)
        else:
            assert isinstance(load_topology_text(found.text, file="ours.yml"), Lab)
            assert all(row.what and row.to_do for row in found.remarks)


@FUZZ
@given(edited(SEEDS, TOKENS))
def test_edited_files(text: str) -> None:
    check(text)


@FUZZ
@given(pieces(TOKENS))
def test_pieces_of_the_language(text: str) -> None:
    check(text)
