"""What machines say of themselves: what may not differ is told, and what a stranger says is read with suspicion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.api.pool.about import (
    MAX_BYTES,
    AboutMachine,
    about_this_machine,
    decode_about,
    differences,
    encode_about,
    kinds_of,
)
from testbed.base.errors import TestbedError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def own() -> AboutMachine:
    return about_this_machine(probed=False)


def changed(about: AboutMachine, **environment: Any) -> AboutMachine:
    return replace(about, environment=replace(about.environment, **environment))


def test_what_a_machine_says_is_read_as_it_was_written(own: AboutMachine) -> None:
    assert decode_about(encode_about(own), "lab1") == own
    assert differences(own, own) == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"testbed": "0.9"}, "testbed 0.9, and here"),
        ({"python": "3.13.1"}, "Python 3.13.1, and here"),
        ({"transports": "elsewhere"}, "transports elsewhere, and here"),
        ({"interpreted": ["testbed.protocols.roce"]}, "1 modules that were changed"),
    ],
)
def test_what_would_not_do_the_same_is_told(environment: dict[str, Any], words: str, own: AboutMachine) -> None:
    [said] = differences(own, changed(own, **environment))
    assert words in said


def test_other_sources_and_another_engine_are_told(own: AboutMachine) -> None:
    assert differences(own, replace(own, build="0" * 24)) == ["other sources of the transports than here"]
    assert differences(own, replace(own, sources="0" * 24)) == ["other sources of testbed than here"]
    [said] = differences(own, replace(own, build="0" * 24, sources="0" * 24))
    assert said == "other sources of the transports than here"
    [said] = differences(replace(own, engine="2026.8.0"), replace(own, engine=""))
    assert said == "Dask distributed none, and here 2026.8.0"


def test_another_kernel_or_memory_is_no_difference_of_what_is_computed(own: AboutMachine) -> None:
    assert differences(own, changed(own, kernel="9.9", memory_bytes=1, cpu_model="another")) == []


def test_machines_are_of_one_kind_by_cpu_cores_and_kernel(own: AboutMachine) -> None:
    machines = {"a": changed(own, kernel="9.9"), "b": own, "c": own, "d": replace(own, cores=own.cores + 1)}
    assert kinds_of(machines) == [["b", "c"], ["a"], ["d"]]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"build": 7}', b"\xff", b"x" * (MAX_BYTES + 1)])
def test_what_is_no_such_answer_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(TestbedError, match="lab1"):
        decode_about(content, "lab1")
