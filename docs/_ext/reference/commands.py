"""Every verb of the command line with its arguments and options, as the parser knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.markdown import code, plain, sentence, table
from testbed.cli.app import app

_INTRODUCTION = """\
# Commands

Every verb is `./lab VERB` in a checkout, and `testbed VERB` where the package is installed. An option can be set by an
environment variable as well: `TESTBED_`, the verb and the option's name, such as `TESTBED_DEPLOY_TIMEOUT=60`.

"""


def page() -> str:
    context = app.make_context("testbed", [], resilient_parsing=True)
    text = _INTRODUCTION + "## Before the verb\n\n" + _parameters(app, context)
    text += "## All verbs\n\n" + table(
        ("Verb", "What it does"),
        ((f"[{code(name)}](#{anchor(name)})", plain(_help(command))) for name, command, _ in _verbs(app, context)),
    )
    for name, command, own in _verbs(app, context):
        text += f"({anchor(name)})=\n## {code(name)}\n\n{plain(sentence(_help(command)))}\n\n"
        usage = " ".join((f"./lab {name}", *command.collect_usage_pieces(own)))
        text += f"```text\n{usage}\n```\n\n" + _parameters(command, own)
    return text


def every_verb() -> Iterator[tuple[str, Any, Any]]:
    """Every verb that does something, those of groups included: its whole name, its command, its context."""
    yield from _verbs(app, app.make_context("testbed", [], resilient_parsing=True))


def anchor(name: str) -> str:
    """The label of a verb's section."""
    return f"verb-{name.replace(' ', '-')}"


def _verbs(group: Any, context: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every verb that does something, those of groups included: its whole name, its command, its context."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "list_commands"):
            yield from _verbs(command, own, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command, own


def _help(command: Any) -> str:
    return (command.help or command.short_help or "").split("\n\n")[0]


def _parameters(command: Any, context: Any) -> str:
    """Tables of the arguments that say something of themselves, and of the options."""
    arguments, options = [], []
    for one in command.get_params(context):
        if getattr(one, "hidden", False) or "--help" in one.opts:
            continue
        help_text = plain(sentence(getattr(one, "help", None) or ""))
        if one.param_type_name == "argument":
            if help_text:
                arguments.append((code(one.metavar or one.name.upper()), help_text))
            continue
        names = ", ".join(code(name) for name in one.opts)
        if one.secondary_opts:
            names += f" / {', '.join(code(name) for name in one.secondary_opts)}"
        options.append((names, _value(one), _default(one), help_text))
    text = table(("Argument", "What it is"), arguments) if arguments else ""
    return text + (table(("Option", "Value", "Default", "What it does"), options) if options else "")


def _value(option: Any) -> str:
    if option.is_flag:
        return "flag"
    names = {"float": "number", "integer": "whole number", "path": "file or folder"}
    value = names.get(option.type.name, "text")
    return f"{value}, repeatable" if option.multiple else value


def _default(option: Any) -> str:
    default = option.to_info_dict()["default"]
    if default is None or callable(default) or default is False or default in ([], ()):
        return ""
    return "yes" if default is True else code(f"{default:g}" if isinstance(default, float) else default)
