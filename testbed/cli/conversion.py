"""Values of parameters that are of their type already are taken as they are.

Typer builds a validator of Pydantic's for every parameter of the verb that is used, also for those that are left out
and those that take any text: importing Pydantic is a third of the time that a short command takes. What is to be
converted, or is wrong, goes to Typer's own conversion.
"""

from __future__ import annotations

from typing import Any, get_args

_PLAIN = (str, int, float, bool)


def convert_only_where_needed(command: Any) -> None:
    """Have a command of Typer's, and those in it where it is a group, convert only what is not of its type already."""
    parameters_of = command.get_params

    def get_params(context: Any) -> Any:  # the help option is among them, which is made when it is first asked for
        parameters = parameters_of(context)
        for parameter in parameters:
            _spare_conversion(parameter)
        return parameters

    command.get_params = get_params
    for nested in getattr(command, "commands", {}).values():
        convert_only_where_needed(nested)


def _spare_conversion(parameter: Any) -> None:
    # Nothing is done a second time, where a version of Typer converts otherwise, or where a verb converts by itself.
    info = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
    if "get_runtime_param" in vars(parameter) or info is None or info.parser is not None:
        return
    conversion = _Conversion(parameter)
    parameter.get_runtime_param = lambda: conversion


class _Conversion:
    """How the value of one parameter is converted; stands in for Typer's `RuntimeParam`."""

    def __init__(self, parameter: Any) -> None:
        self._several = parameter.multiple or parameter.nargs == -1
        self._type = _plain_type(parameter.type_descriptor, several=self._several)
        self._typers_own = parameter.get_runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as its type. Raises click's `BadParameter` where it cannot be converted."""
        if value is None:
            return () if self._several else None
        if self._several and isinstance(value, list | tuple) and all(type(item) is self._type for item in value):
            return list(value)
        if not self._several and type(value) is self._type:
            return value
        return self._typers_own().coerce(value, param=param, ctx=ctx)


def _plain_type(descriptor: Any, *, several: bool) -> type | None:
    """Return the type that a value, or each of several, is to have; None where Typer has more to look at than that."""
    annotation = descriptor.annotation
    if several:
        of_each = get_args(annotation)
        annotation = of_each[0] if len(of_each) == 1 else None
    within_bounds = descriptor.parameter_info.min is None and descriptor.parameter_info.max is None
    return annotation if annotation in _PLAIN and within_bounds else None
