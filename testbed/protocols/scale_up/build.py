"""The C of scale-up links (`testbed.protocols.scale_up.native`) as a library, compiled once for each version of its
source."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from testbed.base.datapath.build import compiled, source_texts
from testbed.protocols.scale_up.native import FLAGS, bound, source_names


def build(cache: Path | None = None, *flags: str) -> Path:
    """The compiled library, from the cache where this source was compiled before; `flags` are added to those of the
    compiler.

    Raises `CapabilityError` where clang or the headers are missing.
    """
    sources = source_texts("testbed.protocols.scale_up", "native", list(source_names()))
    return compiled("scale-up", ".so", sources, (*FLAGS, *flags), cache, what="the link layer of scale-up links")


@functools.cache
def library() -> Any:
    """The library's functions. Raises as `build`."""
    return bound(build())
