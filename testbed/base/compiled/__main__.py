"""`python -m testbed.base.compiled`: compiles the modules that are in the way of a packet, where no build fits them."""

from __future__ import annotations

import sys

from testbed.base.compiled.build import BuildError, build


def main() -> int:
    try:
        made = build(lambda text: print(text, file=sys.stderr, flush=True))
    except BuildError as error:
        print(f"{error}\n  {error.hint}", file=sys.stderr)
        return 1
    how = "was there already" if made.seconds is None else f"made in {made.seconds:.0f} s"
    print(f"{made.directory}: {made.modules} modules, {how}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
