"""What the page asks for before it is there (`core/early.js`, `core/api.js`), in the JavaScript engine of Playwright
without a browser."""

import subprocess
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable

from testbed.api.console.page_files import STATIC

pytestmark = pytest.mark.process

PAGE = """
const asked = [];
globalThis.location = {hash: "#/labs/one"};
globalThis.document = {documentElement: {dataset: {opens: ""}}};
globalThis.dispatchEvent = () => {};
globalThis.fetch = async path => {
  asked.push(path);
  return new Response(JSON.stringify({number: asked.length}));
};
const {askAhead, forgetAhead, neededOf, takeAhead} = await import(`${process.argv[1]}/core/early.js`);
const {ask} = await import(`${process.argv[1]}/core/api.js`);
const check = (found, wanted) => {
  const [is, should] = [found, wanted].map(each => JSON.stringify(each));
  if (is !== should) throw new Error(`${is} is not ${should}`);
};
"""
"""A page that opens the lab `one`, and a server that numbers what it is asked for."""


def run(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    engine, _ = compute_driver_executable()
    text = f"{PAGE}{script}\nprocess.exit(0);"
    argv = [str(engine), "--input-type=module", "--eval", text, STATIC.as_uri()]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            'const needed = ["", "/map", "/positions"].map(end => `/api/labs/one${end}`);'
            'check(asked, ["/api/console", "/api/labs", ...needed]);'
            'check((await ask("GET", "/api/labs/one/map")).number, 4);'
            'check((await ask("GET", "/api/labs/one/map")).number, 6);',
            id="what was asked for ahead is given out once",
        ),
        pytest.param(
            'askAhead(neededOf("/api/labs/two", "map"));'
            "forgetAhead();"
            'askAhead(neededOf("/api/labs/one", "map"));'
            'check((await ask("GET", "/api/labs/one/map")).number, 10);'
            'check(takeAhead("/api/labs/two/map") === undefined, true);',
            id="who comes back to a lab has it as it is then",
        ),
        pytest.param(
            "const stop = new AbortController();"
            'const answer = ask("GET", "/api/labs/one/map", undefined, stop.signal);'
            "stop.abort();"
            'check(await answer.then(() => "told", error => error.name), "AbortError");',
            id="who has gone on is told nothing any more",
        ),
    ],
)
def test_of_what_was_asked_for_ahead(script: str, tmp_path: Path) -> None:
    result = run(script, tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_check_that_does_not_hold_fails(tmp_path: Path) -> None:
    assert "1 is not 2" in run("check(1, 2);", tmp_path).stderr
