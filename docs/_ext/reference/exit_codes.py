"""The exit codes of every verb: those that all have, and what they mean for a verb that judges or runs a program."""

from __future__ import annotations

from reference.commands import anchor, every_verb
from reference.markdown import code, plain, sentence, table
from testbed.base.errors import ExitCode

MEANINGS = {
    ExitCode.PASS: ("It is done. Where the verb judges, all is well", "go on"),
    ExitCode.FAIL: (
        "It is done, and the answer is no: an expectation is missed, a test has failed",
        "stop: a regression",
    ),
    ExitCode.INVALID: (
        "It began and has no answer: the machine did not keep up, something broke off on the way, or testbed has a bug,"
        " which it shows with a traceback",
        "try again, on a machine that does less",
    ),
    ExitCode.NOT_STARTED: (
        "It could not begin: a typo, a bad option, a mistake in a file, or a file, lab, program, package or right that"
        " is missing",
        "stop: mend the command or the machine",
    ),
    ExitCode.INTERRUPTED: ("Ctrl-C or SIGTERM has ended it. What it had made is undone", "stop"),
}
"""What each code means, and what a pipeline does with it."""

_INTRODUCTION = """\
# Exit codes

A pipeline can tell an answer from what is none by the exit code, which means the same for every verb:

"""
_OF_VERBS = """\
## Of a verb

A verb that is not in this table never ends with 1. One that runs a program ends with the code of that program; where
there is no such node or machine, it ends with 3 like all others.

"""


def page() -> str:
    text = _INTRODUCTION + table(
        ("Code", "Meaning", "What a pipeline does"),
        (
            (code(int(one)), plain(sentence(meaning)), plain(sentence(then)))
            for one, (meaning, then) in MEANINGS.items()
        ),
    )
    rows = (
        (f"[{code(name)}](#{anchor(name)})", code(one), plain(sentence(meaning)))
        for name, command, _ in every_verb()
        for one, meaning in command.codes.items()
    )
    return text + _OF_VERBS + table(("Verb", "Code", "Meaning"), rows)
