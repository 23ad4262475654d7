"""Reads the state of a lab that is up: nodes by their processes, links by their carrier, sessions by their daemons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from testbed.api.console.sources.shape import LabShape
from testbed.api.console.sources.state import LinkWord, SeenState
from testbed.base.errors import DriverError
from testbed.lab.core.deploy.links.recorded import read_link_state
from testbed.lab.core.deploy.links.words import changed_words
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.sessions import read_sessions


def with_nodes(state: SeenState, lab: RunningLab) -> SeenState:
    """Return a state with the nodes as they are now."""
    return replace(state, nodes=tuple(status.state for status in lab.status()))


def with_links(state: SeenState, lab: RunningLab, shape: LabShape) -> SeenState:
    """Return a state with all links as they are now, asked of the kernel."""
    up = lab.link_states()
    conditions = read_conditions(lab)
    return replace(
        state,
        links=tuple(_word(up.get(_place(name), False), name in conditions) for name in shape.places),
        conditions=conditions,
    )


def with_conditions(state: SeenState, lab: RunningLab, shape: LabShape) -> SeenState:
    """Return a state with what was changed of links by hand, as it is recorded; what is up stays as it was."""
    conditions = read_conditions(lab)
    words = zip(shape.places, state.links, strict=False)
    return replace(
        state,
        links=tuple(_word(word != LinkWord.DOWN, name in conditions) for name, word in words),
        conditions=conditions,
    )


def with_link(state: SeenState, shape: LabShape, place: str, *, up: bool) -> SeenState:
    """Return a state in which one port is up or down."""
    number = shape.places.get(place)
    if number is None or number >= len(state.links):
        return state
    links = list(state.links)
    links[number] = _word(up, place in state.conditions)
    return replace(state, links=tuple(links))


def with_sessions(state: SeenState, lab: RunningLab, nodes: Iterable[str] | None = None) -> SeenState:
    """Return a state with the BGP sessions of some nodes as they are now; None: of all."""
    chosen = None if nodes is None else set(nodes)
    sessions = dict(state.sessions) if chosen is not None else {}
    for speaker in lab.plan.speakers:
        if chosen is not None and speaker.node not in chosen:
            continue
        try:
            found = read_sessions(speaker, lab.run_directory(speaker.node))
        except DriverError:
            sessions |= {f"{speaker.node}:{neighbor.interface}": "unknown" for neighbor in speaker.neighbors}
            continue
        for session in found:
            sessions[f"{session.node}:{session.interface}"] = "/".join(filter(None, (session.state, session.bfd)))
    return replace(state, sessions=sessions)


def read_conditions(lab: RunningLab) -> Mapping[str, str]:
    """Return how ports differ from what is declared, in words, by "NODE:IF"; but for being down."""
    changes = read_link_state(lab.state_directory).changes
    words = {place: ", ".join(changed_words(replace(change, up=None))) for place, change in changes.items()}
    return {place: text for place, text in words.items() if text}


def _place(name: str) -> tuple[str, str]:
    node, _, interface = name.partition(":")
    return node, interface


def _word(up: bool, changed: bool) -> int:
    return int(LinkWord.DOWN if not up else LinkWord.CHANGED if changed else LinkWord.UP)
