"""Words in the field "Find", on each look of the map and in a table: patterns of the command line, and states."""

from collections.abc import Callable
from typing import Any

import pytest

Open = Callable[..., Any]
pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(600)]

LIT = """() => [...document.querySelectorAll('.world .n.on')]
  .map(node => node.getAttribute('aria-label').split(', ')[1]).sort()"""
CELLS_LIT = """async words => {
  const {readWords} = await import('/static/core/filter.js');
  const {lab, shown} = consoleApp.live.get(), found = readWords(words);
  return lab.ports.node.map((node, port) => port).filter(port => found.port(lab, shown.state, port)).map(lab.portName);
}"""


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ("p1-s1-rail[1]", {"p1-s1-rail1"}),
        ("p1-s1-rail[!1]", {"p1-s1-rail2", "p1-s1-rail3", "p1-s1-rail4"}),
        ("p1-s1-rail[2-1]", set()),
        ("p1-s1-rail[", set()),
        ("p1-s1-rail1 peer=nobody", {"p1-s1-rail1"}),
    ],
)
def test_brackets_are_those_of_the_command_line(words: str, nodes: set[str], look: Open) -> None:
    """A bracket that is not closed yet, as one has it while one types, is an error of no script."""
    page = look("map")
    page.wait_for_function("() => document.querySelectorAll('.world .n').length > 0")
    page.locator("#find").fill(words)
    page.wait_for_function("words => consoleApp.address.get().filter === words", arg=words)
    assert set(page.evaluate(LIT)) == nodes


@pytest.mark.parametrize("view", ["map?p.look=honeycomb", "map?p.look=matrix", "table", "time"])
def test_a_bracket_that_is_not_closed_breaks_no_view(view: str, look: Open) -> None:
    page = look(view)
    page.locator("#find").fill("p1-s1-rail[")
    page.wait_for_function("() => consoleApp.address.get().filter === 'p1-s1-rail['")
    page.wait_for_timeout(700)  # a tick, which draws it again
    assert page.get_by_text("This part of the page has failed").count() == 0


def test_a_state_is_followed_while_it_changes(look: Open) -> None:
    page = look("map?q=state=down")
    page.wait_for_function("() => document.querySelectorAll('.world .n').length > 0")
    assert page.evaluate(LIT) == [] == page.evaluate(CELLS_LIT, "state=down")
    page.evaluate(
        "() => { const port = consoleApp.live.get().lab.portNumber.get('p1-s1-h1:rail1');"
        " consoleApp.told('state', {links: {[port]: 0}}); }"
    )
    page.wait_for_function("() => document.querySelectorAll('.world .n.on').length === 1")
    assert page.evaluate(LIT) == ["p1-s1-h1"]
    assert page.evaluate(CELLS_LIT, "state=d*") == ["p1-s1-h1:rail1"]
