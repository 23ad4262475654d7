"""Sockets in the network namespaces of a lab's nodes and VRFs: asked one after the other, or opened and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from typing import Protocol, TypeVar

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.names import namespace_name


class _Closable(Protocol):
    def close(self) -> object: ...


_Key = TypeVar("_Key")
_Found = TypeVar("_Found")
_Socket = TypeVar("_Socket", bound=_Closable)


def ask_inside(
    lab: str, places: Iterable[str], new: Callable[[], _Socket], ask: Callable[[str, _Socket], _Found]
) -> dict[str, _Found]:
    """Return what `ask` finds at each place, a node or a VRF, given a `new` socket of its network namespace."""
    wanted = list(places)

    def work() -> dict[str, _Found]:
        found = {}
        for place in wanted:
            enter_namespace(namespace_name(lab, place))
            with closing(new()) as item:
                found[place] = ask(place, item)
        return found

    return syscalls.in_thread(work) if wanted else {}


def open_inside(lab: str, wanted: Mapping[_Key, str], new: Callable[[_Key], _Socket]) -> dict[_Key, _Socket]:
    """Open a `new` socket for each key in the network namespace of its place. Where one fails, none stays open."""

    def work() -> dict[_Key, _Socket]:
        made = {}
        with ExitStack() as opened:
            for key, place in wanted.items():
                enter_namespace(namespace_name(lab, place))
                made[key] = opened.enter_context(closing(new(key)))
            opened.pop_all()
        return made

    return syscalls.in_thread(work)
