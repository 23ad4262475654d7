"""`.venv`: when it is complete, what is installed into it, and what is said where that fails."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from testbed.base.files import CHECKOUT
from testbed.base.installation.environment import VirtualEnvironment, requirements
from testbed.base.installation.errors import InstallationError
from testbed.base.installation.log import MOST_BYTES, Log

PROJECT = '[project]\nname = "x"\n[tool.other]\nlength = 3\n'


class Tools:
    """What `Log.run` has run, and the exit codes that it returns by a word of the command line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[list[str]] = []
        self.codes: dict[str, int] = {}
        self.says = ""

        def run(log: Log, argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> int:
            self.ran.append(list(argv))
            with log.path.open("a") as file:
                file.write(self.says)
            return next((code for word, code in self.codes.items() if word in argv), 0)

        monkeypatch.setattr(Log, "run", run)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(monkeypatch)


@pytest.fixture
def environment(tmp_path: Path) -> VirtualEnvironment:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    found = VirtualEnvironment(tmp_path)
    (found.directory / "bin").mkdir(parents=True)
    Path(found.program("python")).touch(mode=0o755)
    return found


@pytest.mark.parametrize(
    ("made_for", "serves"), [("dev", {"dev", "docs", "run"}), ("docs", {"docs", "run"}), ("run", {"run"})]
)
def test_an_environment_serves_what_needs_less(
    environment: VirtualEnvironment, made_for: str, serves: set[str]
) -> None:
    assert not environment.serves(made_for)
    environment.stamp(made_for)
    assert {purpose for purpose in ("dev", "docs", "run") if environment.serves(purpose)} == serves


@pytest.mark.parametrize(
    ("old", "new", "still"), [("length = 3", "length = 4", True), ('name = "x"', 'name = "y"', False)]
)
def test_it_is_made_anew_when_its_requirements_change(
    environment: VirtualEnvironment, old: str, new: str, still: bool
) -> None:
    environment.stamp("run")
    (environment.root / "pyproject.toml").write_text(PROJECT.replace(old, new))
    assert environment.serves("run") is still


def test_requirements_are_everything_but_settings_of_tools() -> None:
    found = requirements((CHECKOUT / "pyproject.toml").read_text())
    assert "[build-system]" in found and "[project.scripts]" in found
    assert "[tool." not in found


def test_one_without_its_python_is_none(environment: VirtualEnvironment) -> None:
    environment.stamp("dev")
    Path(environment.program("python")).unlink()
    assert not environment.serves("dev")


def test_pip_installs_once_for_each_purpose(environment: VirtualEnvironment, tools: Tools) -> None:
    environment.install("run")
    assert tools.ran[-1][-2:] == ["-e", f"{environment.root}[all,compiled]"]
    tools.ran.clear()
    environment.install("run")
    assert tools.ran == []
    environment.install("dev")
    assert tools.ran[-1][-2:] == ["-e", f"{environment.root}[dev]"]


def test_without_a_pip_all_but_the_log_is_made_anew(environment: VirtualEnvironment, tools: Tools) -> None:
    environment.log.begin()
    (environment.directory / "lib64").symlink_to("nowhere")
    tools.codes["-c"] = 1
    environment.install("run")
    assert ["python3", "-m", "venv", str(environment.directory)] in tools.ran
    assert {path.name for path in environment.directory.iterdir()} == {"setup.log", ".stamp"}


@pytest.mark.parametrize(
    ("word", "says", "reason", "advice"),
    [
        ("pip", "Temporary failure in name resolution\n", "pip could not install", "the network cannot be reached"),
        ("pip", "no such version\n", "pip could not install", "the whole log: "),
        ("venv", "no ensurepip\n", "python3 -m venv failed", ""),
    ],
)
def test_what_fails_shows_its_log(
    environment: VirtualEnvironment,
    tools: Tools,
    capsys: pytest.CaptureFixture[str],
    word: str,
    says: str,
    reason: str,
    advice: str,
) -> None:
    environment.stamp("dev")
    (environment.root / "pyproject.toml").write_text("[project]\n")
    tools.says, tools.codes = says, {word: 1, "-c": int(word == "venv")}
    with pytest.raises(InstallationError, match=reason) as told:
        environment.install("run")
    assert "".join(told.value.advice).startswith(advice)
    assert says in capsys.readouterr().err
    assert not environment.serves("run")
    assert not (environment.directory / ".stamp").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".venv").touch()
    with pytest.raises(InstallationError, match="cannot write") as told, VirtualEnvironment(tmp_path).being_changed():
        pass
    assert told.value.advice == (f"run this as the owner of {tmp_path}, or with sudo",)


def test_a_long_log_is_begun_anew(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.path.write_text("x" * 100)
    log.begin()
    assert log.path.stat().st_size == 100
    log.path.write_text("x" * (MOST_BYTES + 1))
    log.begin()
    assert log.path.stat().st_size == 0
