"""An option that takes one value is refused where it is given twice: click takes the last one without a word."""

from __future__ import annotations

from collections import Counter
from typing import Any

from testbed.base.errors import TestbedError


def refuse_repeated_options(command: Any) -> None:
    """Have a command of Typer's, and those in it where it is a group, refuse an option that is given twice.

    Options that take several values are not meant, nor are flags that say no more the second time.
    """
    make_parser = command.make_parser

    def make_strict_parser(context: Any) -> Any:
        parser = make_parser(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found = parse(args=args)
            _check(found[2])
            return found

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_strict_parser
    for nested in getattr(command, "commands", {}).values():
        if nested is not None:
            refuse_repeated_options(nested)


def _check(given: list[Any]) -> None:
    """`given` are the parameters in the order of the command line, each as often as it is there."""
    for parameter, times in Counter(given).items():
        is_switch = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
        if times < 2 or parameter.param_type_name != "option" or parameter.multiple or parameter.count or is_switch:
            continue
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        error = TestbedError(f"{names}: given {times} times, and it takes one value", hint="say it once")
        error.exit_code = 2
        raise error
