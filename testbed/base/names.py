"""Names: what a lab, a node and an interface may be called, and the namespace a node lives in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

# Lengths: /run/testbed/<lab>/<node>/<socket> must fit sockaddr_un (108 bytes, unix(7)).
LAB_NAME = re.compile(r"^[a-z][a-z0-9-]{0,27}$")
NODE_NAME = re.compile(r"^[a-z][a-z0-9-]{0,47}$")
INTERFACE_NAME = re.compile(r"^[a-z][a-z0-9_.-]{0,14}$")

TENANT_NAME = re.compile(r"^[a-z][a-z0-9-]{0,14}$")
"""A VRF may be an interface, and FRR has a VRF "default"."""

MAX_INTERFACE_NAME = 15
"""IFNAMSIZ - 1 of linux/if.h."""
_NAMES_IN_HINT = 8
_MEANT_IN_HINT = 3


def check_lab_name(name: str) -> None:
    """Raise `ValueError` unless `name` may name a lab."""
    if not LAB_NAME.match(name):
        raise ValueError(
            f"{name!r} cannot name a lab: lower-case letters, digits and '-', starting with a letter, at most 28"
        )


def check_node_name(name: str) -> None:
    """Raise `ValueError` unless `name` may name a node: it becomes part of paths and namespaces."""
    if not NODE_NAME.match(name):
        raise ValueError(
            f"{name!r} cannot name a node: lower-case letters, digits and '-', starting with a letter, at most 48"
        )


def check_interface_name(name: str) -> None:
    """Raise `ValueError` unless `name` may name an interface (at most 15 bytes, IFNAMSIZ)."""
    if not INTERFACE_NAME.match(name) or name == "lo":
        raise ValueError(
            f"{name!r} cannot name an interface: lower-case letters, digits, '_', '.' and '-',"
            " starting with a letter, at most 15, not 'lo'"
        )


def check_tenant_name(name: str) -> None:
    """Raise `ValueError` unless `name` may name a tenant or a subnet of one: it becomes the name of a VRF."""
    if not TENANT_NAME.match(name) or name in ("lo", "default", "none"):
        raise ValueError(
            f"{name!r} cannot name a tenant or a subnet: lower-case letters, digits and '-', starting with a letter,"
            " at most 15, not 'default' or 'none'"
        )


def kernel_target_nqn(lab: str, node: str) -> str:
    """The name of the subsystem of a storage target that the kernel serves: those names are the machine's."""
    return f"nqn.2026-01.testbed:{lab}:{node}"


def vrf_node_name(switch: str, tenant: str) -> str:
    """The name in operations of the namespace of a tenant's VRF on a switch: a node beside the switch."""
    return f"{switch}-{tenant}"


def domain_node_name(domain: str) -> str:
    """The name in operations of the namespace of a scale-up domain's switch: a node beside those of the lab."""
    return f"scaleup-{domain}"


SUBNET_NODE = "infiniband"
"""The name in operations of the namespace of an InfiniBand back end's management plane: a node beside a lab's own."""


def namespace_name(lab: str, node: str) -> str:
    """The network namespace of a node, visible to `ip netns`."""
    return f"{lab}-{node}"


def fitting_name(name: str, longest: int = 48) -> str:
    """Make a name in small letters, digits and '-', a letter first, of what somebody called a thing elsewhere.

    A word in front that makes it too long, as that of GigabitEthernet0/0/1 does, is cut, and what follows it from its
    front if that alone is too long.
    """
    text = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    word, rest = re.fullmatch("([a-z]*)(.*)", text).groups()  # type: ignore[union-attr]  # it always matches
    rest = rest[-(longest - 1) :]
    return (word[: longest - len(rest)] or "n") + rest


def nearest(word: str, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """The known word a user most probably meant, for a hint; `least` is the likeness that it must have, from 0 to 1."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=least)
    return found[0] if found else None


def choice_hint(word: str, choices: Iterable[str], otherwise: str | None = None) -> str | None:
    """The hint for a word that is none of a few: the one that was meant, else `otherwise`, by default all of them; None
    where there is none."""
    words = list(choices)
    if meant := nearest(word, words):
        return f"did you mean {meant}?"
    return otherwise or (f"one of {', '.join(words)}" if words else None)


def known_names_hint(word: str, known: Sequence[str]) -> str | None:
    """The hint for a name that is not there: the one that was meant, or the first few there are; None without any."""
    listed = ", ".join(known[:_NAMES_IN_HINT]) + (", ..." if len(known) > _NAMES_IN_HINT else "")
    return choice_hint(word, known, f"there {'is' if len(known) == 1 else 'are'} {listed}" if known else None)


def meant_names(word: str, known: Iterable[str]) -> list[str]:
    """The known names that a user may have meant, the likeliest first: those that end in the word, as p1-s1-h1 does in
    h1, or else the one most like it."""
    names = list(known)
    ends = [name for name in names if word and name.endswith(f"-{word}")]
    like = nearest(word, names)
    return ends[:_MEANT_IN_HINT] if ends else [] if like is None else [like]


def all_names_hint(word: str, known: Iterable[str]) -> str | None:
    """The hint for a name that is not there: those that may have been meant, and what there is; None without any."""
    names = list(known)
    if not names:
        return None
    *others, last = names[:_NAMES_IN_HINT]
    if len(names) > _NAMES_IN_HINT:
        others, last = [*others, last], f"{len(names) - _NAMES_IN_HINT} more"
    listed = f"there {'are' if others else 'is'} {' and '.join(filter(None, (', '.join(others), last)))}"
    *first, best = meant_names(word, names) or [""]
    return f"did you mean {' or '.join(filter(None, (', '.join(first), best)))}? {listed}" if best else listed


def first_few(items: Sequence[object], most: int, between: str = ", ") -> str:
    """Name the first few of some things, and count the others: "a, b and 3 more"."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return between.join(map(str, items[:most])) + more


def rail_switch_name(pod: int, segment: int, index: int, plane: str = "") -> str:
    """`p1-s1-rail1`; `plane` is "a".."h" where there are several planes of switches, else ""."""
    return f"p{pod}-s{segment}-rail{index}{plane}"


def spine_name(pod: int, index: int, plane: str = "") -> str:
    """`p1-spine1`, or `p1-spine1a` where the spines of planes are their own."""
    return f"p{pod}-spine{index}{plane}"


def super_spine_name(index: int, plane: str = "") -> str:
    """`ss1`, or `ss1a` where the super-spines of planes are their own."""
    return f"ss{index}{plane}"


PLANE_LETTERS = "abcdefgh"
"""The names of planes of switches, of which there are at most eight."""


def plane_letter(plane: int) -> str:
    """ "a".."h" for planes 1..8, "" for 0 (there is one plane)."""
    return "" if plane == 0 else PLANE_LETTERS[plane - 1]


_IN_PLANE = re.compile(r"^(?:p\d+-s\d+-rail|p\d+-spine|ss)\d+([a-h])$")


def plane_of_switch(name: str) -> str:
    """The plane that is in the name of a generated switch, such as "a" of `p1-s1-rail1a`; "" where none is."""
    found = _IN_PLANE.match(name)
    return found[1] if found else ""


def host_name(pod: int, segment: int, index: int) -> str:
    return f"p{pod}-s{segment}-h{index}"
