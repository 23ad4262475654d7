"""`./lab` as a program: how it finds Python, what it starts, what it says, and with which exit code.

The script runs in a small checkout of its own, whose `.venv` is complete by its stamp and whose tools say what they are
asked. What is installed, and what is said where that fails, `tests/unit/base/installation` asks of the functions.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from checks import commands

from testbed.base.installation.__main__ import SPHINX
from testbed.base.installation.environment import VirtualEnvironment

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
NOBODY = 65534
INSTALLATION = ("__init__.py", "base/__init__.py", "base/version.py", "base/compiled", "base/installation")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def python(checkout: Path, text: str = "exit 0") -> None:
    """The Python of the checkout's environment: a real one for the rest of `./lab`, else a script."""
    real = shutil.which("python3", path="/usr/bin") or sys.executable  # ours may lie where root alone can read
    program(checkout / ".venv/bin/python", f'[ "$1" != -I ] || exec {real} "$@"\n{text}')


@pytest.fixture
def copy() -> Iterator[Path]:
    """A checkout in small, which everybody may enter: pytest's own directories are closed."""
    with tempfile.TemporaryDirectory(prefix="testbed lab ") as directory:  # the space is on purpose
        Path(directory).chmod(0o755)
        checkout = Path(directory) / "checkout"
        for name in INSTALLATION:
            source, target = ROOT / "testbed" / name, checkout / "testbed" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "built"))
            else:
                shutil.copy(source, target)
        for name in ("lab", "pyproject.toml"):
            shutil.copy(ROOT / name, checkout / name)
        program(checkout / ".venv/bin/testbed", 'echo "testbed $*"; pwd')
        python(checkout)
        VirtualEnvironment(checkout).stamp("dev")
        yield checkout


def run(
    checkout: Path, *words: str, cwd: Path | None = None, nobody: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script, as `nobody` if asked and if we are root."""
    if nobody and os.geteuid() == 0:
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if nobody and os.geteuid() == 0 else {}
    return subprocess.run(
        [str(checkout / "lab"), *words],
        cwd=cwd or checkout,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        **user,  # type: ignore[call-overload]
    )


def test_scripts_are_executable_bash() -> None:
    for script in ("lab", ".ci/run"):
        path = ROOT / script
        assert os.access(path, os.X_OK)
        assert path.read_text().startswith("#!/usr/bin/env bash\n")
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


@pytest.fixture
def bare(copy: Path) -> Path:
    """Without an environment, and with a PATH (`bin` beside the checkout) that has no Python."""
    shutil.rmtree(copy / ".venv")
    for name in ("bash", "env", "dirname", "uname", "tail", "mkdir", "sh"):
        (copy.parent / "bin").mkdir(exist_ok=True)
        (copy.parent / "bin" / name).symlink_to(str(shutil.which(name)))
    return copy


def test_another_distribution_is_told_what_to_install(bare: Path) -> None:
    done = run(bare, "demo", PATH=str(bare.parent / "bin"))
    assert done.returncode == 3
    assert "packages are installed only on Debian 12, 13 and Ubuntu 24.04" in done.stderr
    assert "python3 python3-venv" in done.stderr


def test_only_root_installs_python(bare: Path) -> None:
    program(bare.parent / "bin/apt-get", "exit 0")
    done = run(bare, "list", nobody=True, PATH=str(bare.parent / "bin"))
    assert done.returncode == 3
    assert "only root can install them: python3 python3-venv" in done.stderr


@needs_root
@pytest.mark.parametrize(
    ("apt", "told"),
    [
        ("echo 'E: Unable to locate package python3'; exit 100", "E: Unable to locate package python3"),
        ("exit 0", "testbed needs Python 3.11 or newer"),
    ],
)
def test_a_python_that_cannot_be_had_is_told(bare: Path, apt: str, told: str) -> None:
    program(bare.parent / "bin/apt-get", apt)
    program(bare.parent / "bin/python3", "echo Python 3.9.2; exit 1")
    done = run(bare, "demo", PATH=str(bare.parent / "bin"))
    assert done.returncode == 3
    assert "installing python3 python3-venv" in done.stderr
    assert told in done.stderr


def test_other_arguments_go_to_the_command_line_in_the_callers_directory(copy: Path, tmp_path: Path) -> None:
    done = run(copy, "validate", "-t", "my file.yml", cwd=tmp_path)
    assert done.stdout == f"testbed validate -t my file.yml\n{tmp_path}\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_complete_environment_is_not_touched(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (copy / ".venv").rglob("*")}
    run(copy, "list")
    after = {path: path.stat().st_mtime_ns for path in (copy / ".venv").rglob("*") if path.name != "setup.log"}
    assert after == before


def test_a_changed_pyproject_installs_again(copy: Path) -> None:
    project = copy / "pyproject.toml"
    project.write_text("# changed\n" + project.read_text())
    python(copy, '[ "$1" = -m ] && echo "$*" >>"$RECORD"\nexit 0')
    done = run(copy, "docs", RECORD=str(copy / "record"))
    assert done.returncode == 0, done.stderr
    assert "installing Python packages" in done.stderr
    assert f"-e {copy}[all,docs]" in (copy / "record").read_text()
    assert run(copy, "list").stderr == "", "the command line is served too"


@pytest.mark.parametrize("words", [[], ["tests/unit", "-k", "a b"]])
def test_arguments_of_tests_go_to_the_gate(copy: Path, words: list[str]) -> None:
    """What is run is told by tests/support/gate; without root no packages are asked for."""
    python(copy, '[ "$1" = -m ] || printf "%s|" "$@"\nexit 3')
    done = run(copy, "test", *words, nobody=True)
    assert done.stdout.rstrip("|").split("|") == [f"{copy}/tests/support/gate/gate.py", *words]
    assert done.returncode == 3
    assert "installing" not in done.stderr


@pytest.mark.parametrize("words", ["demo", "demo -q", "test --all", "test --everything"])
def test_what_deploys_labs_needs_root(copy: Path, words: str) -> None:
    done = run(copy, *words.split(), nobody=True)
    assert done.returncode == 3, done.stderr
    assert f"sudo ./lab {words}" in done.stderr


def test_docs_take_no_arguments(copy: Path) -> None:
    done = run(copy, "docs", "--fast")
    assert done.returncode == 3
    assert "takes no arguments" in done.stderr


@pytest.mark.parametrize("words", ["run x.yml", "demo --backend simulation"])
def test_what_carries_packets_is_compiled_first(copy: Path, words: str) -> None:
    python(copy, '[ "$2" != testbed.base.compiled ] || echo made >&2')
    done = run(copy, *words.split(), nobody=True, TESTBED_PURE="0")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"testbed {words}"), done.stderr
    assert done.stderr == "transports: made\n"
    assert run(copy, "validate", "x", TESTBED_PURE="0").stderr == ""


def test_docs_are_built_strictly_without_root_and_the_first_page_is_named(copy: Path) -> None:
    python(copy, f'[ "$2" = sphinx ] && echo "$*" >"{copy}/asked"\nexit 0')
    stale = copy / "build/docs/gone.html"
    stale.parent.mkdir(parents=True)
    stale.write_text("of a page that is no longer there")
    done = run(copy, "docs", cwd=Path("/"), nobody=True)
    assert (done.returncode, done.stdout) == (0, f"docs: {copy}/build/docs/index.html (open it in a browser)\n")
    assert set(SPHINX) <= set((copy / "asked").read_text().split())
    assert {"-W", "--keep-going", "-n", "-E"} <= set(SPHINX)
    assert not stale.exists()


def test_a_mistake_in_the_docs_is_shown(copy: Path) -> None:
    python(copy, "echo \"docs/index.md:3: WARNING: unknown document: 'nowhere'\" >&2\nexit 1")
    done = run(copy, "docs")
    assert done.returncode == 1
    assert "docs/index.md:3: WARNING: unknown document: 'nowhere'" in done.stderr
    assert done.stdout == ""


def test_hooks_of_a_commit_are_the_checks_of_the_tests() -> None:
    """Each hook runs a tool of .venv, and what it runs `./lab test` runs, too."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    checks = commands(ROOT)
    for hook in hooks:
        tool = hook["entry"].split()[0]
        assert hook["language"] == "system" and tool.startswith(".venv/bin/")
        assert checks[hook["name"]][0] == str(ROOT / tool)
    assert {hook["name"] for hook in hooks} == {"ruff", "ruff format", "mypy", "lint-imports"}
