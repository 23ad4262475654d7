"""The command that the user gave, where a verb runs on another machine: records name it, not the one started there."""

from __future__ import annotations

import json
import os
import sys

VARIABLE = "TESTBED_COMMAND"


def asked_command() -> list[str]:
    """The command line of the user: this process's, or that of the machine which sent us here."""
    try:
        words = json.loads(os.environ.get(VARIABLE, ""))
    except ValueError:
        words = None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return ["testbed", *sys.argv[1:]]


def with_what_was_asked(command: list[str]) -> list[str]:
    """A command for another machine, which will know there what was asked here."""
    return ["env", f"{VARIABLE}={json.dumps(asked_command())}", *command]
