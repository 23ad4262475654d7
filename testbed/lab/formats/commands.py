"""Commands that a file of another tool runs in its nodes: which of them have nothing left to do in a planned lab.

Addresses, routes, forwarding daemons and links that are up come with the plan. A command that sets them again would
undo it (`ip route replace default` takes a host off its fabric), so it is left out; its addresses are kept apart, since
a link of a host may have a prefix of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from itertools import pairwise

SCRIPT = "/etc/testbed/setup.sh"
"""The path at which the nodes of an exported lab see the script of their plan, which `exec` runs and `import` knows
again."""
_ROUTING_SHELLS = frozenset(
    {
        *("vtysh", "sr_cli", "Cli", "FastCli", "cli", "birdc", "gobgp", "watchfrr", "frrinit.sh", "bgpd", "zebra"),
        *("ospfd", "isisd", "systemctl", "service", "supervisorctl", "config", "rc-service", "bird"),
    }
)
"""Programs that configure or start routing."""
_ADDRESS_PROGRAMS = frozenset({"ifconfig", "route", "dhclient", "udhcpc", "dhcpcd", "ifup", "netplan", "nmcli"})
_SHELLS = frozenset({"sh", "bash", "ash", "/bin/sh", "/bin/bash", "/bin/ash"})
_BETWEEN = re.compile(r"\s*(?:&&|\|\||;|\n)\s*")
_IP_OBJECTS = ("address", "link", "route", "rule", "neighbour", "neighbor")
_CHANGING = frozenset({"add", "a", "ad", "replace", "change", "append", "del", "d", "delete", "flush"})


@dataclass(slots=True)
class SortedCommands:
    """The commands of a node: those to run, as text, those that the plan makes needless, and the addresses in them."""

    kept: list[str] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    addresses: dict[str, IPv4Interface] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    """Interfaces that the commands make themselves."""


def sort_commands(commands: Sequence[str]) -> SortedCommands:
    """Take the commands apart. One that is not to be split is kept as it is: the file's reader refuses it."""
    found = SortedCommands()
    for command in commands:
        words = split_command(command)
        if not words:
            continue
        found.made |= _made(words)
        script = _script(words)
        if script is None:
            _sort_one(command, words, found)
            continue
        pieces = [piece for piece in _BETWEEN.split(script) if piece.strip()]
        rest = SortedCommands(addresses=found.addresses, made=found.made)
        for piece in pieces:
            found.made |= _made(split_command(piece))
            _sort_one(piece, split_command(piece), rest)
        found.planned += rest.planned
        if len(rest.kept) == len(pieces):
            found.kept.append(command)
        elif rest.kept:
            found.kept.append(shlex.join([words[0], "-c", " && ".join(rest.kept)]))
    return found


def split_command(command: str) -> list[str]:
    """Split a command as a shell does; into nothing where its quotes are not closed."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def at_home(command: str, binds: Mapping[str, str]) -> str:
    """Return a command of a container as this machine has its files: paths in binds (target: source) are theirs."""
    words = split_command(command)
    moved = [_moved(word, binds) for word in words]
    return command if moved == words else shlex.join(moved)


def _moved(word: str, binds: Mapping[str, str]) -> str:
    for target, source in binds.items():
        if word == target:
            return source
        if word.startswith(target.rstrip("/") + "/"):
            return source.rstrip("/") + word[len(target.rstrip("/")) :]
    return word


def _script(words: Sequence[str]) -> str | None:
    """Return what a shell is told to do; None where the command is none of a shell."""
    if len(words) == 3 and words[0] in _SHELLS and re.fullmatch("-[a-z]*c", words[1]):
        return words[2]
    return None


def _sort_one(command: str, words: Sequence[str], found: SortedCommands) -> None:
    program = words[0].rpartition("/")[2] if words else ""
    if program in _ROUTING_SHELLS or program in _ADDRESS_PROGRAMS or SCRIPT in words:
        found.planned.append(command)
    elif program == "ip" and _is_planned(words[1:]) and not found.made.intersection(words):
        found.planned.append(command)
        _note_address(words, found)
    else:
        found.kept.append(command)


def _made(words: Sequence[str]) -> set[str]:
    """Return the interfaces that a command makes."""
    if len(words) < 4 or words[0] != "ip" or not "link".startswith(words[1]) or words[2] != "add":
        return set()
    named = {after for word, after in pairwise(words) if word in ("name", "dev")}
    return named if words[3] in ("name", "dev") else {words[3], *named}


def _is_planned(arguments: Sequence[str]) -> bool:
    """Tell whether these arguments of `ip` set what the plan sets. A link of another kind is the node's own matter."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words:
        return False
    names = [name for name in _IP_OBJECTS if name.startswith(words[0])]
    if not names or words[0] in ("netns", "n"):
        return False
    verb = words[1] if len(words) > 1 else ""
    if "link" in names:
        return verb in ("set", "s") and ("up" in words or "mtu" in words)
    return verb in _CHANGING


def _note_address(words: Sequence[str], found: SortedCommands) -> None:
    """Keep the IPv4 address that a command gives an interface."""
    thing = next((word for word in words[1:] if not word.startswith("-")), "")
    if "dev" not in words[:-1] or not "address".startswith(thing):
        return
    interface = words[words.index("dev") + 1]
    for word in words:
        if re.fullmatch(r"[0-9.]+/[0-9]{1,2}", word):
            try:
                found.addresses.setdefault(interface, IPv4Interface(word))
            except ValueError:
                continue
            return
