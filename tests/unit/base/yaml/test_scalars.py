"""Plain scalars of the core schema of YAML 1.2."""

import math

import pytest

from testbed.base.yaml.scalars import ScalarError, resolve_plain_scalar


@pytest.mark.parametrize("text", ["on", "off", "yes", "no", "On", "NO", "y", "n", "tRUE", "nULL"])
def test_words_of_yaml_1_1_are_text(text: str) -> None:
    assert resolve_plain_scalar(text) == text


@pytest.mark.parametrize(
    "text",
    ["1:30", "190:20:30", "1_000", "2024-01-01", "0b11", "1.2.3.4", "10.0.0.0/8", "400G", "0x", "0o8", "1e", ".", "-"],
)
def test_what_looks_like_a_number_but_is_none_is_text(text: str) -> None:
    assert resolve_plain_scalar(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("+12", 12),
        ("65535", 65535),
        ("0o10", 8),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1e3", -1000.0),
        ("01.5", 1.5),
        ("true", True),
        ("FALSE", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("-.inf", -math.inf),
    ],
)
def test_core_schema(text: str, value: object) -> None:
    resolved = resolve_plain_scalar(text)
    assert resolved == value
    assert type(resolved) is type(value)


def test_not_a_number() -> None:
    resolved = resolve_plain_scalar(".nan")
    assert isinstance(resolved, float)
    assert math.isnan(resolved)


@pytest.mark.parametrize(("text", "decimal"), [("010", "10"), ("00", "0"), ("-007", "-7"), ("+08", "8")])
def test_a_leading_zero_is_refused_with_what_to_write(text: str, decimal: str) -> None:
    with pytest.raises(ScalarError, match="begins with a zero") as caught:
        resolve_plain_scalar(text)
    assert f"write {decimal} " in caught.value.hint
    assert f'"{text}"' in caught.value.hint


def test_a_number_of_absurd_length_is_refused() -> None:
    with pytest.raises(ScalarError, match="5000 characters"):
        resolve_plain_scalar("9" * 5000)
