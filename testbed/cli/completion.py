"""Completion in shells: `--show-completion` prints click's script for one, `--install-completion` puts it there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from testbed.base.errors import TestbedError

PROGRAM = "testbed"
SHELLS = ("bash", "zsh", "fish")
_ZSH = ("fpath+=~/.zfunc; autoload -Uz compinit; compinit", "zstyle ':completion:*' menu select")


def completion_script(command: click.Command, shell: str) -> str:
    """Return what a shell is to read to complete our command lines. Raises `TestbedError` for one that cannot."""
    kind = get_completion_class(shell)
    if kind is None:
        raise TestbedError(f"there is no completion for the shell {shell or 'that this is'}", hint=", ".join(SHELLS))
    return kind(command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()


def install_completion(command: click.Command, shell: str, home: Path) -> Path:
    """Write the script where the shell looks for it, and return that file. Raises `TestbedError` for other shells."""
    script = completion_script(command, shell)
    match shell:
        case "bash":
            path = home / ".bash_completions" / f"{PROGRAM}.sh"
            _add_lines(home / ".bashrc", f"source '{path}'")
        case "zsh":
            path = home / ".zfunc" / f"_{PROGRAM}"
            _add_lines(home / ".zshrc", *_ZSH)
        case "fish":
            path = home / ".config" / "fish" / "completions" / f"{PROGRAM}.fish"
        case _:
            raise TestbedError(f"no file of {shell} is known", hint="--show-completion prints what it is to read")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    return path


def _add_lines(file: Path, *lines: str) -> None:
    content = file.read_text() if file.is_file() else ""
    missing = [line for line in lines if line not in content]
    if missing:
        file.write_text("\n".join([content.rstrip("\n"), *missing, ""]).lstrip("\n"))


def current_shell() -> str:
    """Name the shell that this command was started from, or the user's own; "" where none is known."""
    own = Path(os.environ.get("SHELL", "")).name
    return next((name for name in _ancestors(os.getppid()) if get_completion_class(name)), own)


def _ancestors(process: int) -> Iterator[str]:
    """Yield the names of a process and those above it."""
    while process > 1:
        try:
            name, fields = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rsplit(")", 1)
        except (OSError, ValueError):
            return
        yield name
        process = int(fields.split()[1])
