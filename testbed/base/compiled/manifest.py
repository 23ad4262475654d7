"""The manifest of a build: the source that each of its modules was made of, and the modules whose native code it uses.

Calls between compiled modules do not go through Python: a module keeps calling the compiled code of another, and has
constants of it in its own, whatever Python has imported by that name. So the manifest says who needs whom. It is read
from the C that was compiled, and for constants from what the source imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MANIFEST_FILE = "manifest.json"
_SYMBOL = re.compile(r"\b(?:CPy[A-Za-z]*_)?(\w*___\w*)")
"""A name of a module's own in the C of mypyc: words that three underscores join, the module's first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """A module of a build: the digest of its source, and the modules that it cannot do without as they were built.

    `layout` is that of its named tuples, whose places are in the code of whoever reads one.
    """

    source: str
    needs: frozenset[str] = frozenset()
    layout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The modules of a build by name. `maker` is the interpreter and the way of building.

    `surroundings` are the constants of other modules that are in the code of these, and `beside` the digests of the
    files that they are in.
    """

    maker: str
    modules: Mapping[str, BuiltModule]
    surroundings: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write it into the directory of its build."""
        modules = {
            name: {"source": one.source, "needs": sorted(one.needs), "layout": one.layout}
            for name, one in self.modules.items()
        }
        document = {
            "maker": self.maker,
            "surroundings": self.surroundings,
            "beside": dict(self.beside),
            "modules": modules,
        }
        (directory / MANIFEST_FILE).write_text(json.dumps(document, indent=1))


def read_manifest(directory: Path) -> Manifest | None:
    """Read the manifest of a build; None where it has none that can be read."""
    try:
        found = json.loads((directory / MANIFEST_FILE).read_bytes())
        modules = {
            str(name): BuiltModule(
                source=str(one["source"]), needs=frozenset(map(str, one["needs"])), layout=str(one["layout"])
            )
            for name, one in found["modules"].items()
        }
        beside = {str(path): str(digest) for path, digest in found["beside"].items()}
        return Manifest(
            maker=str(found["maker"]), surroundings=str(found["surroundings"]), beside=beside, modules=modules
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def native_needs(texts: Mapping[str, str], prefixes: Mapping[str, str]) -> dict[str, set[str]]:
    """By module, the others whose functions, classes or structures its C names.

    `texts` is the C of each module, `prefixes` how the names of each begin in it: `dcqcn___`. Raises `ValueError`
    where a module does not name itself so: then nothing is known of who needs whom.
    """
    owners = {prefix.removesuffix("___"): module for module, prefix in prefixes.items()}
    owners |= {module.replace(".", "___"): module for module in prefixes}
    needs: dict[str, set[str]] = {}
    for module, text in texts.items():
        found = {owner for symbol in set(_SYMBOL.findall(text)) if (owner := _owner(symbol, owners)) is not None}
        if module not in found:
            raise ValueError(f"the C of {module} does not name it as {prefixes[module]}")
        needs[module] = found - {module}
    return needs


def _owner(symbol: str, owners: Mapping[str, str]) -> str | None:
    """The module that a name in C is of: the one with the most words in front of it; None where there is none."""
    words = symbol.split("___")
    for count in range(len(words), 0, -1):
        owner = owners.get("___".join(words[:count]))
        if owner is not None:
            return owner
    return None
