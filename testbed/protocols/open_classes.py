"""A mark on classes that are compiled and may have subclasses that are not, such as a controller under work.

Calls of its methods go through the class of the object then. mypyc knows the mark by the name of its original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return a decorator that leaves a class as it is: where nothing is compiled, any class may be a base."""
        return lambda decorated: decorated


__all__ = ["mypyc_attr"]
