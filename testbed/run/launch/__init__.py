"""Programs of one's own on the fabric: a command becomes ranks on hosts, which find each other and speak over rails.

Each host is a host to its ranks, with a name, memory and interfaces of its own. What the ranks do not know is that they
are on one machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.run.launch.kills import HostKills
    from testbed.run.launch.launcher import launch_ranks
    from testbed.run.launch.options import LaunchOptions, LaunchOrder, LaunchRefused
    from testbed.run.launch.ranks import RankPlace, place_ranks
    from testbed.run.launch.result import LaunchEnd, LaunchResult, RankEnd, RankLine
    from testbed.run.launch.traffic import PortTraffic

__all__ = [
    "HostKills",
    "LaunchEnd",
    "LaunchOptions",
    "LaunchOrder",
    "LaunchRefused",
    "LaunchResult",
    "PortTraffic",
    "RankEnd",
    "RankLine",
    "RankPlace",
    "launch_ranks",
    "place_ranks",
]
_MODULES = {
    "HostKills": "kills",
    "launch_ranks": "launcher",
    **dict.fromkeys(("LaunchOptions", "LaunchOrder", "LaunchRefused"), "options"),
    **dict.fromkeys(("RankPlace", "place_ranks"), "ranks"),
    **dict.fromkeys(("LaunchEnd", "LaunchResult", "RankEnd", "RankLine"), "result"),
    "PortTraffic": "traffic",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: whoever chooses options does not load what starts programs."""
    if name in _MODULES:
        return getattr(import_module(f"testbed.run.launch.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'testbed.run.launch' has no attribute {name!r}")
