"""`./lab` without its installations: what it says, with which exit code, and that a second run does nothing.

The script runs in a copy of its own beside a `.venv` that is complete by its stamp, or with a PATH of our
own in which apt-get, python3 and pip are recorders.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from checks import commands

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SCRIPT_TOOLS = (
    *("bash", "env", "dirname", "uname", "cut", "sha256sum", "stat", "flock", "mkdir", "tail", "grep", "rm", "cat"),
    *("find", "sort", "sed", "sh", "iperf3", "ip", "tcpdump", "ps"),
)


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout in small: the script, pyproject.toml, and an environment whose tools say what they are asked."""
    checkout = tmp_path / "a checkout"  # the space is on purpose
    checkout.mkdir()
    shutil.copy(ROOT / "lab", checkout / "lab")
    shutil.copy(ROOT / "pyproject.toml", checkout / "pyproject.toml")
    for tool in ("testbed", "ruff", "mypy", "lint-imports"):
        program(checkout / ".venv/bin" / tool, f'#!/bin/sh\necho "{tool} $*"; pwd\n')
    program(checkout / ".venv/bin/python", "#!/bin/sh\nexit 0\n")
    stamp(checkout, "dev")
    return checkout


def stamp(checkout: Path, extra: str) -> None:
    head = (checkout / "pyproject.toml").read_text().partition("[tool.")[0]
    digest = hashlib.sha256(head.encode()).hexdigest()[:32]
    (checkout / ".venv/.stamp").write_text(f"{digest} {extra} {checkout}")


def run(
    checkout: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "lab"), *arguments],
        cwd=cwd or checkout,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def tools_only(directory: Path, *without: str) -> str:
    """A PATH with the tools that the script itself uses, and the machine's others but those in `without`."""
    directory.mkdir(exist_ok=True)
    for name in SCRIPT_TOOLS:
        found = shutil.which(name)
        if found and name not in without:
            (directory / name).symlink_to(found)
    # Not a link: a python3 in PATH may be a launcher that looks at its own name.
    program(directory / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return str(directory)


def test_scripts_are_executable_bash() -> None:
    for script in ("lab", ".ci/run"):
        path = ROOT / script
        assert os.access(path, os.X_OK)
        assert path.read_text().startswith("#!/usr/bin/env bash\n")
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def test_other_arguments_go_to_the_command_line_in_the_callers_directory(copy: Path, tmp_path: Path) -> None:
    done = run(copy, "validate", "-t", "my file.yml", cwd=tmp_path)
    assert done.stdout == f"testbed validate -t my file.yml\n{tmp_path}\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_complete_environment_is_not_touched(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (copy / ".venv").rglob("*") if path.name != "setup.log"}
    run(copy, "list")
    after = {path: path.stat().st_mtime_ns for path in (copy / ".venv").rglob("*") if path.name != "setup.log"}
    assert after == before


def test_a_changed_pyproject_installs_again(copy: Path) -> None:
    project = copy / "pyproject.toml"
    project.write_text("# changed\n" + project.read_text())
    program(copy / ".venv/bin/python", '#!/bin/sh\n[ "$1" = -m ] && echo "$*" >>"$RECORD"\nexit 0\n')
    done = run(copy, "list", RECORD=str(copy / "record"))
    assert done.returncode == 0, done.stderr
    assert "installing Python packages" in done.stderr
    assert (copy / "record").read_text().rstrip().endswith(f"-e {copy}[compiled]")
    assert run(copy, "list").stderr == ""


def test_changed_settings_of_tools_do_not(copy: Path) -> None:
    with (copy / "pyproject.toml").open("a") as file:
        file.write("[tool.other]\nline-length = 80\n")
    assert run(copy, "list").stderr == ""


def test_pip_that_fails_shows_its_log_and_names_the_network(copy: Path) -> None:
    (copy / ".venv/.stamp").unlink()
    failing = '#!/bin/sh\n[ "$1" = -m ] || exit 0\necho "[Errno -3] Temporary failure in name resolution"; exit 1\n'
    program(copy / ".venv/bin/python", failing)
    done = run(copy, "list")
    assert done.returncode == 2
    assert "Temporary failure in name resolution" in done.stderr
    assert "the network cannot be reached" in done.stderr
    assert not (copy / ".venv/.stamp").exists()


def test_another_distribution_is_told_what_to_install(copy: Path, tmp_path: Path) -> None:
    done = run(copy, "demo", PATH=tools_only(tmp_path / "bin", "iperf3", "tcpdump"))
    if os.geteuid() != 0:
        pytest.skip("the demo asks for root first")
    assert done.returncode == 2
    assert "packages are installed only on Debian 12, 13 and Ubuntu 24.04" in done.stderr
    assert "iperf3 tcpdump" in done.stderr


SLOW_TIERS = {"mmdebstrap", "e2fsprogs", "tshark", "openvswitch-switch", "nbdkit", "fio", "docker.io"}


@pytest.mark.parametrize(
    ("option", "needed", "not_needed"),
    [
        ("-q", {"clang", "iputils-ping"}, {"docker.io", "mmdebstrap", "vagrant"}),
        ("--all", SLOW_TIERS, {"vagrant"}),
        ("--everything", SLOW_TIERS, set()),
    ],
)
def test_each_tier_asks_for_what_its_tests_run(
    copy: Path, tmp_path: Path, option: str, needed: set[str], not_needed: set[str]
) -> None:
    """The image of the lab VM, the engine of containers; Vagrant, where Debian has it, with everything."""
    if os.geteuid() != 0:
        pytest.skip("without root no packages are asked for, and the slow tiers ask for root first")
    done = run(copy, "test", option, PATH=tools_only(tmp_path / "bin"))
    asked = set(done.stderr.partition("(Debian's names): ")[2].splitlines()[0].split())
    assert needed <= asked
    assert not not_needed & asked
    if option == "--everything" and "bookworm" in Path("/etc/os-release").read_text():
        assert {"vagrant", "vagrant-libvirt", "libvirt-daemon-system", "qemu-system-x86"} <= asked


def test_apt_that_fails_shows_its_log(copy: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root installs packages")
    path = tools_only(tmp_path / "bin", "iperf3")
    program(tmp_path / "bin/apt-get", '#!/bin/sh\necho "E: Unable to locate package iperf3"; exit 100\n')
    done = run(copy, "demo", PATH=path)
    assert done.returncode == 2
    assert "E: Unable to locate package iperf3" in done.stderr
    assert "apt-get could not install iperf3" in done.stderr


def without_root(
    checkout: Path,
    *arguments: str,
) -> subprocess.CompletedProcess[str]:
    """Run the script as somebody who is not root: as ourselves, or as nobody where we are root."""
    argv = [str(checkout / "lab"), *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed, to give up root with")
        subprocess.run(["chown", "-R", "65534:65534", str(checkout)], check=True)
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
    return subprocess.run(
        argv, cwd=checkout, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture
def open_copy(copy: Path) -> Iterator[Path]:
    """The checkout in small where everybody may enter; pytest's own directories are closed."""
    with tempfile.TemporaryDirectory(prefix="testbed lab ") as directory:
        Path(directory).chmod(0o755)
        checkout = Path(directory) / "checkout"
        shutil.copytree(copy, checkout)
        stamp(checkout, "dev")
        yield checkout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["demo"], "demo"), (["test", "--all"], "test --all"), (["test", "--everything"], "test --every")],
)
def test_what_deploys_labs_needs_root(open_copy: Path, arguments: list[str], word: str) -> None:
    done = without_root(open_copy, *arguments)
    assert done.returncode == 2, done.stderr
    assert f"sudo ./lab {word}" in done.stderr


def test_tests_without_root_ask_for_no_packages(open_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = open_copy.parent / "bin"
    tools = tools_only(path, "iperf3", "tcpdump")
    program(
        path / "python3", "#!/bin/sh\nexit 0\n"
    )  # new enough; that of these tests may lie where root alone can read
    for tool in ("chown", "setpriv", "nproc"):
        if found := shutil.which(tool):
            (path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", tools)
    done = without_root(open_copy, "test", "tests/x")
    assert done.returncode == 0, done.stderr
    assert "installing" not in done.stderr


def test_hooks_of_a_commit_are_the_checks_of_the_tests() -> None:
    """Each hook runs a tool of .venv, and what it runs `./lab test` runs, too."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    checks = commands(ROOT)
    for hook in hooks:
        tool = hook["entry"].split()[0]
        assert hook["language"] == "system" and tool.startswith(".venv/bin/")
        assert checks[hook["name"]][0] == str(ROOT / tool)
    assert {hook["name"] for hook in hooks} == {"ruff", "ruff format", "mypy", "lint-imports"}


def test_demo_takes_no_arguments(copy: Path) -> None:
    done = run(copy, "demo", "--fast")
    assert done.returncode == 2
    assert "takes no arguments" in done.stderr


def test_demo_names_its_report_and_keeps_the_verdict(copy: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the demo needs root")
    directory = copy / "results" / "rail-permutation-1"
    program(
        copy / ".venv/bin/testbed",
        f'#!/bin/sh\nmkdir -p "{directory}"; echo >"{directory}/report.html"; exit 2\n',
    )
    done = run(copy, "demo")
    assert done.stdout.splitlines()[-1] == f"report: {directory}/report.html (open it in a browser)"
    assert done.returncode == 2


def test_demo_without_a_report_asks_the_doctor(copy: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the demo needs root")
    program(copy / ".venv/bin/testbed", '#!/bin/sh\n[ "$1" = doctor ] && echo "veth is missing"; exit 1\n')
    done = run(copy, "demo")
    assert "veth is missing" in done.stderr
    assert done.returncode == 1


# --- ./lab docs --------------------------------------------------------------------------------------


def sphinx_that_says(checkout: Path, text: str, code: int) -> None:
    """A Python whose Sphinx writes a page, says what it was asked, and ends with `code`."""
    program(
        checkout / ".venv/bin/python",
        f'#!/bin/sh\n[ "$2" = sphinx ] || exit 0\necho "$*" >"{checkout}/asked"\necho "{text}" >&2\nexit {code}\n',
    )


def test_docs_are_built_strictly_and_the_first_page_is_named(copy: Path, tmp_path: Path) -> None:
    sphinx_that_says(copy, "", 0)
    stale = copy / "build/docs/gone.html"
    stale.parent.mkdir(parents=True)
    stale.write_text("of a page that is no longer there")
    done = run(copy, "docs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"docs: {copy}/build/docs/index.html (open it in a browser)\n")
    asked = (copy / "asked").read_text().split()
    assert {"-W", "--keep-going", "-n", "-E"} <= set(asked)
    assert not stale.exists()


def test_a_mistake_in_the_docs_is_shown(copy: Path) -> None:
    sphinx_that_says(copy, "docs/index.md:3: WARNING: unknown document: 'nowhere'", 1)
    done = run(copy, "docs")
    assert done.returncode == 2
    assert "docs/index.md:3: WARNING: unknown document: 'nowhere'" in done.stderr
    assert done.stdout == ""


def test_docs_take_no_arguments(copy: Path) -> None:
    done = run(copy, "docs", "--fast")
    assert done.returncode == 2
    assert "takes no arguments" in done.stderr


@pytest.mark.parametrize(("extra", "installs"), [("dev", False), ("docs", False), ("run", True)])
def test_docs_install_what_they_need_and_no_packages_of_the_system(
    copy: Path, tmp_path: Path, extra: str, installs: bool
) -> None:
    stamp(copy, extra)
    program(copy / ".venv/bin/python", '#!/bin/sh\n[ "$1" = -m ] && echo "$*" >>"$RECORD"\nexit 0\n')
    record = copy / "record"
    done = run(copy, "docs", RECORD=str(record), PATH=tools_only(tmp_path / "bin", "iperf3", "tcpdump"))
    assert done.returncode == 0, done.stderr
    assert (f"-e {copy}[docs]" in record.read_text()) is installs
    assert run(copy, "list").stderr == "", "the command line is served too"


def test_docs_need_no_root(copy: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, to give it up with setpriv")
    sphinx_that_says(copy, "", 0)
    for path in (copy, *copy.rglob("*")):
        os.chown(path, 65534, 65534)
    for path in copy.parents:
        if path != Path("/tmp") and path.is_relative_to("/tmp"):
            path.chmod(path.stat().st_mode | stat.S_IXOTH)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(copy / "lab"), "docs"],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("build/docs/index.html (open it in a browser)\n")


class TestOfTests:
    """What is run is told by tests/support/gate: here it is what is installed, and what is asked for."""

    @pytest.mark.parametrize("words", [[], ["tests/unit", "-k", "a b"]])
    def test_arguments_go_to_the_gate(self, copy: Path, words: list[str]) -> None:
        program(copy / ".venv/bin/python", '#!/bin/sh\n[ "$1" = -m ] || printf "%s|" "$@"\nexit 3\n')
        done = run(copy, "test", *words)
        assert done.stdout.rstrip("|").split("|") == [f"{copy}/tests/support/gate/gate.py", *words]
        assert done.returncode == 3
