"""The command line as it was written, from the verb on: for `--on`, which hands it to another machine."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

WORDS = "testbed.words"
"""Where a context's `meta` has them."""


class RootGroup(TyperGroup):
    """The verbs. Keeps what comes after its own options, before a verb takes it apart."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta[WORDS] = list(args)
        return super().resolve_command(ctx, args)
