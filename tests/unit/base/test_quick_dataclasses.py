"""Data classes that are made when they are used first are those of the standard library, in all that a program sees."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, InitVar, asdict, astuple, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pytest

from testbed.base import quick_dataclasses

QUICK: Any = quick_dataclasses.dataclass
STANDARD: Any = dataclasses.dataclass
OPTIONS = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
]


def declared(make: Any, **options: Any) -> Any:
    @make(**options)
    class Port:
        """A port with all kinds of fields."""

        name: str
        rate: int = 100
        peers: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)
        seen: int = field(default=7, init=False)
        KINDS: ClassVar[int] = 3

        def __post_init__(self) -> None:
            if self.rate < 0:
                raise ValueError("rate")

        @property
        def double(self) -> int:
            return 2 * self.rate

    return Port


def said(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        return type(error), str(error).replace("__init__", "").replace("Port.", "").replace("declared.<locals>.", "")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_the_same_class(options: dict[str, bool]) -> None:
    quick, standard = declared(QUICK, **options), declared(STANDARD, **options)
    assert is_dataclass(quick) and quick.__qualname__ == standard.__qualname__ and quick.__doc__ == standard.__doc__
    assert [repr(item) for item in fields(quick)] == [repr(item) for item in fields(standard)]
    assert quick.__match_args__ == standard.__match_args__
    assert getattr(quick, "__slots__", None) == getattr(standard, "__slots__", None)
    assert (quick.__hash__ is None) == (standard.__hash__ is None)
    assert quick.KINDS == 3


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "act",
    [
        lambda kind: repr(kind(name="a")),
        lambda kind: repr(kind(name="a", rate=3, peers=["x"], note="n")),
        lambda kind: repr(kind("a", 3)),
        lambda kind: kind(),
        lambda kind: kind(name="a", odd=1),
        lambda kind: kind(name="a", rate=-1),
        lambda kind: kind(name="a", seen=1),
        lambda kind: kind(name="a") == kind(name="a", note="other"),
        lambda kind: kind(name="a") == kind(name="b"),
        lambda kind: kind(name="a") == ("a", 100, [], 7),
        lambda kind: kind(name="a").peers is kind(name="a").peers,
        lambda kind: kind(name="a").double,
        lambda kind: asdict(kind(name="a")),
        lambda kind: astuple(kind(name="a")),
        lambda kind: repr(replace(kind(name="a"), rate=5)),
        lambda kind: repr(copy.deepcopy(kind(name="a"))),
        lambda kind: setattr(kind(name="a"), "rate", 5),
        lambda kind: delattr(kind(name="a"), "rate"),
        lambda kind: hash(kind(name="a", peers=())) == hash(kind(name="a", peers=())),
        lambda kind: hash(kind(name="a", peers=())) == hash(("a", 100, (), 7)),
    ],
)
def test_it_does_the_same(options: dict[str, bool], act: Callable[[Any], Any]) -> None:
    assert said(partial(act, declared(QUICK, **options))) == said(partial(act, declared(STANDARD, **options)))


@QUICK(frozen=True, slots=True, kw_only=True)
class Quick:
    """A value that is pickled."""

    a: int
    b: str = "b"


def test_it_is_pickled_and_matched_and_derived_from() -> None:
    value = Quick(a=1)
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        value.a = 2

    @STANDARD(frozen=True, slots=True, kw_only=True)
    class Derived(Quick):
        """One field more, by the standard library."""

        c: int = 0

    assert repr(Derived(a=1, c=3)).endswith("Derived(a=1, b='b', c=3)")
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        STANDARD(type("Odd", (Quick,), {"__doc__": "Not frozen."}))


def test_whatever_is_more_is_left_to_the_standard_library() -> None:
    @QUICK(order=True)
    class Ordered:
        """A value with an order."""

        a: int

    @QUICK
    class WithMore:
        """A value that is told something."""

        a: int
        b: InitVar[int]

        def __post_init__(self, b: int) -> None:
            self.a += b

    assert Ordered(1) < Ordered(2) and WithMore(1, 2).a == 3


PLAN = """
import sys
from testbed.base import quick_dataclasses
if sys.argv[1] == "quick":
    quick_dataclasses.install()
from pathlib import Path
import testbed
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
lab = load_topology(Path("topologies/two-tenants.yml"))
assert decode_lab(encode_lab(lab)) == lab
print(repr(plan_lab(lab, k=1000.0)))
"""


@pytest.mark.process
def test_a_plan_is_the_same_to_the_letter() -> None:
    quick, standard = (
        subprocess.run([sys.executable, "-c", PLAN, word], capture_output=True, text=True, check=True).stdout
        for word in ("quick", "standard")
    )
    assert quick == standard and len(quick) > 10_000


def test_a_class_of_a_module_that_is_no_python_is_left_to_the_standard_library() -> None:
    """The fields of a compiled class are there once its own `__init__` has run, and no other sets them."""
    body = {"__doc__": "A value.", "__module__": "testbed.compiled", "__annotations__": {"a": int}}
    made = QUICK(frozen=True)(type("Compiled", (), body))
    assert "a" in made.__init__.__code__.co_varnames
    assert "a" not in declared(QUICK).__init__.__code__.co_varnames
