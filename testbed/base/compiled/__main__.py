"""`python -m testbed.base.compiled`: compiles the modules that are in the way of a packet, where no build fits them.

With `--quick`, a build of other sources does where few modules have changed since: those are interpreted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from testbed.base.compiled.build import Build, BuildError, build

QUICK = "--quick"


def main(words: Sequence[str]) -> int:
    """Build, say what was done, and return the exit code."""
    try:
        made = build(lambda text: print(text, file=sys.stderr, flush=True), whole=QUICK not in words)
    except BuildError as error:
        print(f"{error}\n  {error.hint}", file=sys.stderr)
        return 1
    if made.left_out:
        print(_said(made), file=sys.stderr)
    how = "was there already" if made.seconds is None else f"made in {made.seconds:.0f} s"
    print(f"{made.directory}: {made.modules} modules, {how}")
    return 0


def _said(made: Build) -> str:
    names = ", ".join(made.left_out)
    return (
        f"interpreted, as changed since {made.modules} others were compiled: {names}"
        " (`python -m testbed.base.compiled` compiles all)"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
