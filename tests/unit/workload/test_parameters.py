"""Parameters that a dataclass declares by its fields: defaults, order, and what is made of what is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.base.errors import WorkloadError
from testbed.base.units import ByteCount, Duration
from testbed.workload.parameters import (
    Parameter,
    ParameterType,
    Values,
    asked,
    choice,
    duration,
    flag,
    listed,
    number,
    parameters_of,
    rank,
    size,
    some_ranks,
    whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """A field of every type that a generator may be asked for, and one that no file gives."""

    elsewhere: int
    size_bytes: int = asked(size("bytes", "2KB", "Gives bytes."))
    burst_bytes: int = asked(size("burst", "4bdp", "Gives bytes by the lab."))
    file: str = asked(Parameter(name="file", type=ParameterType.FILE, description="Names a file.", required=True))
    period_ns: int = asked(duration("period", "3us", "Gives a time."))
    stripes: int | None = asked(whole("stripes", None, "Counts."))
    load: float = asked(number("load", 0.5, "Gives a share.", low=0, high=1))
    mode: str = asked(choice("mode", "a", ("a", "b"), "Says how."))
    reverse: bool = asked(flag("reverse", "Says whether."))
    root: int = asked(rank("root", 0, "Names one."))
    senders: int | tuple[int, ...] | None = asked(some_ranks("senders", None, "Names some."))
    lengths: tuple[int, ...] = asked(
        Parameter(name="lengths", type=ParameterType.LIST, description="Lists some.", default=(1, 2))
    )


def values(written: Mapping[str, Any], *, without: str = "") -> Values:
    by_name = {one.name: one for one in parameters_of(Everything) if one.name != without}
    return Values(parameters=by_name, written={"file": "x"} | dict(written), bdp_bytes=1000)


def test_parameters_are_declared_in_the_order_of_the_fields() -> None:
    assert [one.name for one in parameters_of(Everything)] == [
        *("bytes", "burst", "file", "period", "stripes", "load", "mode", "reverse", "root", "senders", "lengths")
    ]


def test_a_field_has_the_default_of_its_parameter() -> None:
    by_hand = Everything(elsewhere=7, burst_bytes=4000, file="x")
    assert by_hand.size_bytes == 2000
    assert by_hand.period_ns == 3000
    assert values({}).make(Everything, elsewhere=7) == by_hand
    with pytest.raises(TypeError, match="'burst_bytes' and 'file'"):
        Everything(elsewhere=7)


def test_what_is_written_comes_in_bytes_and_nanoseconds() -> None:
    written = {
        "bytes": ByteCount(5),
        "burst": "2bdp",
        "period": Duration(6),
        "stripes": 3,
        "load": 1,
        "mode": "b",
        "reverse": True,
        "root": 4,
        "senders": [1, 2],
        "lengths": [8],
    }
    assert values(written).make(Everything, elsewhere=0) == Everything(
        elsewhere=0,
        size_bytes=5,
        burst_bytes=2000,
        file="x",
        period_ns=6,
        stripes=3,
        load=1.0,
        mode="b",
        reverse=True,
        root=4,
        senders=(1, 2),
        lengths=(8,),
    )


def test_what_is_resolved_comes_before_what_is_written() -> None:
    assert values({"stripes": 3}).make(Everything, elsewhere=0, stripes=5).stripes == 5


def test_a_parameter_that_a_kind_does_not_have_leaves_the_default() -> None:
    assert values({}, without="period").make(Everything, elsewhere=0).period_ns == 3000


def test_a_value_of_another_type_names_its_parameter() -> None:
    with pytest.raises(WorkloadError, match="stripes is 'many'") as caught:
        values({"stripes": "many"}).make(Everything, elsewhere=0)
    assert caught.value.field == "stripes"


def test_ranks_by_number_by_name_and_all() -> None:
    assert listed(None, range(3), "senders") == [0, 1, 2]
    assert listed(2, range(5, 9), "senders") == [5, 6]
    assert listed((7, 1), range(3), "senders") == [7, 1]
    with pytest.raises(WorkloadError, match="4 ranks are asked for; there are 3") as caught:
        listed(4, range(3), "senders")
    assert caught.value.field == "senders"
