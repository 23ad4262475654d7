"""Daemons that serve switches and take their configuration anew while they run, switch by switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from testbed.base.errors import TestbedError
from testbed.daemons.kit import configuration


class _Switch(Protocol):
    @property
    def name(self) -> str: ...


class _Configuration(Protocol):
    @property
    def switches(self) -> Sequence[_Switch]: ...


_C = TypeVar("_C", bound=_Configuration)


def reload_switches(
    source: Path | None,
    old: _C,
    *,
    stop: Callable[[Sequence[str]], object],
    serve: Callable[[_C], object],
    alike: Callable[[_C], bool] = lambda _: True,
) -> _C:
    """Read the file of a configuration again. `stop` ends what is served for the switches of which it says something
    else or nothing, and `serve` begins what is not served yet. What it says comes back.

    What is served for a switch of which it says the same goes on as it is, unless the new one is not `alike` in what is
    the same for all. Raises `TestbedError`.
    """
    if source is None:
        raise TestbedError("the configuration is in no file")
    try:
        new = configuration.read(source, type(old))
        wanted = {switch.name: switch for switch in new.switches}
        same = alike(new)
        stop([switch.name for switch in old.switches if not same or wanted.get(switch.name) != switch])
        serve(new)
    except (OSError, ValueError, RuntimeError) as error:
        raise TestbedError(f"cannot serve the new configuration: {error}") from error
    return new
