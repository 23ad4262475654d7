"""The wheel: it has what is shipped, is the same to the byte each time, and works in an empty environment.

That environment is made by pip as a user's is. The quick start in it needs no root; with root, and on other releases,
`tests/integration/vm/test_wheel_releases.py` goes through all of it.
"""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
from built_wheel import ROOT, build_wheel, copy_sources
from doc_blocks import read_blocks

from testbed.base.version import __version__

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

SHIPPED = {
    path.relative_to(ROOT).as_posix()
    for part in ("topologies", "scenarios")
    for path in (ROOT / part).rglob("*")
    if path.is_file() and path.suffix != ".pyc"
}
EXTRAS = {"docker": "docker", "figures": "cairosvg", "remote": "paramiko"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    return build_wheel(copy_sources(directory / "sources"), directory / "dist")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an empty environment with the wheel, and what it depends on. Its pip is this one's."""
    directory = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin/python"), "install", "--quiet", "--no-compile"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "bin"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("here")


def run(environment: Path, here: Path, *words: str, codes: tuple[int, ...] = (0,), **variables: str) -> str:
    """Run a program of the environment as somebody who knows nothing of this checkout; return what it says."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TESTBED", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(environment / words[0]), *words[1:]],
        cwd=here,
        env={**inherited, "PATH": f"{environment}:{os.environ['PATH']}", "TESTBED_STATE_DIR": str(here), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_it_says_what_it_is(wheel: Path) -> None:
    assert wheel.name == f"testbed-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read(f"testbed-{__version__}.dist-info/METADATA").decode())
    wanted = metadata.get_all("Requires-Dist") or []
    bare = [line for line in wanted if "extra ==" not in line]
    assert bare
    for extra, package in EXTRAS.items():
        assert [line for line in wanted if line.startswith(package) and f"extra == '{extra}'" in line.replace('"', "'")]
        assert not [line for line in bare if line.lower().startswith(package)]
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {__version__} - " in changes


def test_it_has_what_is_shipped_and_nothing_of_a_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = "testbed/api/shipped/"
    assert {name.removeprefix(inside) for name in names if name.startswith(inside)} == SHIPPED
    assert {"testbed/api/topology.schema.json", "testbed/api/scenario.schema.json"} <= names
    assert {name.split("/")[0] for name in names} == {"testbed", f"testbed-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".so")]


@pytest.mark.thorough
def test_two_builds_are_equal_to_the_byte(wheel: Path, tmp_path: Path) -> None:
    """In another place, at another time, with another umask, over what an earlier build has left."""
    sources = copy_sources(tmp_path / "elsewhere" / "sources")
    stale = sources / "build" / "lib" / "testbed" / "gone.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("print('of a module that is no longer there')\n")
    for path in sources.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = os.umask(0o077)
    try:
        again = build_wheel(sources, tmp_path / "dist", environment={"PYTHONHASHSEED": "7"})
    finally:
        os.umask(before)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    released = re.findall(r"^## \S+ - (\d+)-(\d+)-(\d+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    with zipfile.ZipFile(again) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(*map(int, released), 0, 0, 0)}


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_two_compiled_builds_are_equal_to_the_byte(tmp_path: Path) -> None:
    """Nothing is taken from a cache: each has its own. The time of files is the one that was asked for."""
    wheels = []
    for number in ("one", "two"):
        sources = copy_sources(tmp_path / number / "sources")
        told = {"XDG_CACHE_HOME": str(tmp_path / number / "cache"), "SOURCE_DATE_EPOCH": "1000000000"}
        wheels.append(build_wheel(sources, tmp_path / number / "dist", pure=False, environment=told))
    one, two = wheels
    assert one.name == two.name and "none-any" not in one.name
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(two) as second:
        differing = [name for name in first.namelist() if first.read(name) != second.read(name)]
        assert {entry.date_time for entry in first.infolist()} == {(2001, 9, 9, 1, 46, 40)}
    assert differing == []
    assert one.read_bytes() == two.read_bytes()


def test_the_page_is_what_is_tested() -> None:
    """The commands below are those of the page."""
    text = "\n".join(block.text for block in read_blocks(ROOT / "docs/start/install.md"))
    for command in (
        "testbed examples .",
        "testbed validate topologies/demo.yml",
        "testbed demo --backend simulation",
        "sudo $(testbed doctor --install-line)",
        "pip wheel --no-deps --wheel-dir dist .",
    ):
        assert command in text, command


def test_the_quick_start_works(environment: Path, here: Path) -> None:
    assert run(environment, here, "testbed", "--version") == f"testbed {__version__}\n"
    assert "topologies/demo.yml" in run(environment, here, "testbed", "examples")
    assert f"{len(SHIPPED)} files written" in run(environment, here, "testbed", "examples", ".")
    assert "demo.yml: valid" in run(environment, here, "testbed", "validate", "topologies/demo.yml")
    run(environment, here, "testbed", "graph", "-t", "topologies/demo.yml")
    assert (here / "demo.html").stat().st_size > 10_000
    run(environment, here, "testbed", "run", "scenarios/ecmp-against-spraying.yml", "--dry-run")


def test_the_demo_is_simulated(environment: Path, here: Path) -> None:
    said = run(environment, here, "testbed", "demo", "--backend", "simulation", "-q")
    (report,) = (here / "results").glob("*/report.html")
    assert str(report.relative_to(here)) in said
    assert report.with_name("record.json").is_file()


def test_what_an_extra_has_names_it(environment: Path, here: Path) -> None:
    said = run(environment, here, "testbed", "--on", "ssh://nobody@localhost", "list", codes=(2, 3))
    assert "needs the Python package paramiko" in said
    assert "pip install 'testbed[remote]'" in said


def test_schemas_are_there(environment: Path, here: Path) -> None:
    code = "import pathlib, testbed.api as a; print(*sorted(p.name for p in pathlib.Path(*a.__path__).glob('*.json')))"
    there = run(environment, here, "python", "-c", code).split()
    assert there == ["prices.schema.json", "scenario.schema.json", "topology.schema.json"]
