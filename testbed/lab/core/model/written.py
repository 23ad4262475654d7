"""The file that a lab came from, as it was read: what a lab that is up is compared with later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLab:
    """The keys of a topology file, and which of them were set besides.

    `keys` is all that the file said, as JSON, with what `settings` put in its place: dotted keys and their values, also
    as JSON (`--set`, and the key `name` for `-n`). `file` is the absolute path, "" for text that was in no file.
    """

    keys: str
    settings: str = "{}"
    file: str = ""

    @classmethod
    def of(cls, keys: Mapping[str, Any], settings: Mapping[str, Any]) -> WrittenLab:
        """Return what text said that was in no file."""
        return cls(keys=_json(keys), settings=_json(settings))

    @property
    def data(self) -> dict[str, Any]:
        """The keys with their values."""
        found: dict[str, Any] = json.loads(self.keys)
        return found

    @property
    def overrides(self) -> dict[str, Any]:
        """The dotted keys that were set besides, with their values."""
        found: dict[str, Any] = json.loads(self.settings)
        return found


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), default=str)
