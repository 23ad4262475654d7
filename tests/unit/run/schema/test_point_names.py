"""What the keys of a matrix are called: in names of points, and where an expectation or `--only` names one."""

import pytest

from testbed.run.schema.model import is_point_of, names_key
from testbed.run.schema.point_names import last_word, point_name, short_keys

LANES = "fabric.infiniband.sl2vl.1"


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("transport.paths", "paths"),
        ("transport", "transport"),
        (LANES, "sl2vl.1"),
        ("1", "1"),
        ("workload.tenants[1].transport", "transport"),
    ],
)
def test_the_last_word_of_a_key_says_what_it_is(key: str, word: str) -> None:
    """A number alone does not: it is a key of a mapping, as of virtual lanes."""
    assert last_word(key) == word
    assert names_key(word, key) and names_key(key, key)


def test_a_point_is_named_and_found_by_its_words() -> None:
    values: dict[str, object] = {LANES: 0, "fabric.infiniband.voq": False}
    assert point_name(values, short_keys(values)) == "sl2vl.1=0 voq=false"
    assert is_point_of(values, {"sl2vl.1": 0}) and not is_point_of(values, {"sl2vl.1": 1})
    assert not is_point_of(values, {"1": 0})


def test_two_that_end_alike_are_told_whole() -> None:
    assert short_keys(["a.rate", "b.rate", "b.mtu"]) == {"a.rate": "a.rate", "b.rate": "b.rate", "b.mtu": "mtu"}
