"""Keys that a data class declares: a section is taken apart by them, and put together again."""

from dataclasses import dataclass

import pytest

from testbed.base.keys import key, keys_of, made_of, said_in
from testbed.base.units import Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Lamp:
    watts: int = key("Gives its power.", 60, high=100)
    colour: str | None = key("Gives its colour.", None, name="tint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    number: int = 0
    area: int = key("Gives its area.")
    doors: tuple[int, ...] = key("Lists its doors.", ())
    lamp: Lamp | None = key("Describes its lamp.", None, word=False, of_switch=True)
    spare: Lamp = key("Describes the lamp that is kept for it.", Lamp())
    warm: Duration | None = key("Says how long it stays warm.", None)


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (Room(area=0), {"area": 0}),
        (Room(area=9, lamp=Lamp()), {"area": 9, "lamp": True}),
        (
            Room(area=9, doors=(1, 2), lamp=Lamp(colour="red")),
            {"area": 9, "doors": (1, 2), "lamp": True, "tint": "red"},
        ),
    ],
)
def test_a_section_taken_apart_is_put_together_again(room: Room, said: dict[str, object]) -> None:
    assert dict(said_in(room)) == said
    assert Room(**made_of(Room, dict(said_in(room)))).lamp == room.lamp


def test_a_section_that_is_not_wanted_is_passed_over_with_all_its_keys() -> None:
    room = Room(area=9, lamp=Lamp(watts=1))
    assert dict(said_in(room, lambda one: not one.of_switch)) == {"area": 9}


def test_a_list_becomes_what_a_frozen_class_holds_and_what_is_switched_off_is_none() -> None:
    made = Room(**made_of(Room, {"area": 1, "doors": [3], "lamp": False, "warm": Duration(5)}))
    assert (made.doors, made.lamp, made.warm, made.spare) == ((3,), None, Duration(5), Lamp())


def test_what_has_no_keys_says_nothing() -> None:
    assert (keys_of(Duration), keys_of(int), list(said_in(Duration(5)))) == ({}, {}, [])
