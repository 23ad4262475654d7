"""`./lab`, once there is a Python: install what is missing, then run what was asked for.

`lab` starts this file by its path, with the standard library alone. Every command waits for it, so that what only an
installation takes is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
TYPE_CHECKING = False  # without the time that importing typing takes

from testbed.base.installation.environment import VirtualEnvironment  # noqa: E402
from testbed.base.installation.errors import InstallationError, say  # noqa: E402
from testbed.base.installation.log import finish  # noqa: E402

if TYPE_CHECKING:
    from typing import NoReturn

SPHINX = ("-b", "html", "-W", "--keep-going", "-n", "-E", "-q")
"""Strict: a link or a cross reference that leads nowhere, or a page that no list names, is an error."""
FAIL, NOT_STARTED = 1, 3
"""As `testbed.base.errors.ExitCode` says, which takes other modules along."""


def main(words: list[str]) -> int:
    """Do what the words of a command line ask for; return its exit code."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without compiled modules every command takes half a second longer
    verb, environment = words[0] if words else "", VirtualEnvironment(ROOT)
    try:
        match verb:
            case "docs":
                if len(words) > 1:
                    advice = "a test of one page: ./lab test tests/unit/docs -k PAGE"
                    raise InstallationError("./lab docs takes no arguments", advice)
                return _docs(environment)
            case "test":
                _test(environment, words[1:])
            case _:
                _command_line(environment, words)
    except InstallationError as error:
        say(f"lab: {error}", *(f"  {line}" for line in error.advice))
        return NOT_STARTED
    except KeyboardInterrupt:
        return 130  # as a shell says that SIGINT has ended something


def _set_up(environment: VirtualEnvironment, purpose: str, level: str) -> None:
    """Install the Debian packages of a level ("": none) and the Python packages of a purpose."""
    with environment.being_changed():
        if level:
            from testbed.base.installation.debian import install_packages
            from testbed.base.installation.packages import Level

            # An image that is complete has no compiler's needs, and no network to get them from.
            without = ("python3-dev",) if environment.serves("run") else ()
            install_packages(Level[level], environment.log, without=without)
        environment.install(purpose)


def _run(program: str, *words: str) -> NoReturn:
    os.execv(program, [program, *words])


def _need_root(what: str, words: str) -> None:
    if os.geteuid() != 0:
        raise InstallationError(f"{what} needs root: it makes network namespaces and links", f"run: sudo ./lab {words}")


def _command_line(environment: VirtualEnvironment, words: list[str]) -> NoReturn:
    """It says itself what a lab lacks; without root it still validates, draws, simulates and reports."""
    demo = words[:1] == ["demo"]
    if demo and not any("simulation" in word for word in words):
        _need_root("the demo", " ".join(words))
    installs = os.geteuid() == 0 and (demo or not environment.serves("run"))
    _set_up(environment, "run", "LABS" if installs else "")
    environment.is_looked_at()
    if demo or (words[:1] == ["run"] and "--dry-run" not in words):
        environment.compile_modules()
    _run(environment.program("testbed"), *words)


def _docs(environment: VirtualEnvironment) -> int:
    import shutil
    import subprocess

    _set_up(environment, "docs", "")
    built = ROOT / "build" / "docs"
    shutil.rmtree(built, ignore_errors=True)
    argv = [environment.program("python"), "-m", "sphinx", *SPHINX, str(ROOT / "docs"), str(built)]
    if finish(subprocess.Popen(argv, stdin=subprocess.DEVNULL)):
        say("lab: the documentation has mistakes (above)")
        return FAIL
    print(f"docs: {built}/index.html (open it in a browser)")
    return 0


def _test(environment: VirtualEnvironment, words: list[str]) -> NoReturn:
    """tests/support/gate/gate.py compiles, decides what is tested and reports the outcome; here is installed what that
    needs."""
    root = os.geteuid() == 0
    level = "TESTS"
    if "--everything" in words:
        level = "ALL_TESTS"
    elif "--all" in words or (root and "--part" in words):
        level = "SLOW_TESTS"
    # Slow tiers were asked for by name: leaving them out would be no answer.
    if level != "TESTS":
        _need_root("the slow tiers of the tests", f"test {' '.join(words)}")
    _set_up(environment, "dev", level if root else "")
    os.chdir(ROOT)
    _run(environment.program("python"), str(ROOT / "tests/support/gate/gate.py"), *words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
