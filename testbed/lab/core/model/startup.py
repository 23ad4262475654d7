"""A node's own configuration of FRR, beside what is rendered of its plan or in place of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigText:
    """Lines of FRR's configuration that a user wrote.

    `place` is the key of the topology file that has them, or the name of their file, such as
    `topology.roles.rail.startup-config.add`; `file` is that file, relative to the topology's, "" where they stand in
    the topology itself. Both are for messages.
    """

    text: str
    place: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupConfig:
    """The configuration that a node's routing daemons are started with, where a file says something of it.

    `whole` stands in place of what is rendered (None: that is kept), `added` behind it, one after the other.
    """

    whole: ConfigText | None = None
    added: tuple[ConfigText, ...] = ()

    @property
    def texts(self) -> tuple[ConfigText, ...]:
        """All of it in the order in which FRR reads it."""
        return self.added if self.whole is None else (self.whole, *self.added)
