"""The C of a scale-up domain (`testbed.protocols.scale_up.domain`) as a library, compiled once for each version of
its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.base.datapath.build import compiled, source_texts
from testbed.protocols.scale_up.domain.binding import FLAGS, load

SHARED_SOURCES = ("types.h", "histogram.c", "histogram.h", "pfc.c", "pfc.h")
"""Files of `testbed/native` that are compiled with it."""


def build(cache: Path | None = None, *flags: str) -> Path:
    """The compiled library, from the cache where this source was compiled before; `flags` are added to those of the
    compiler.

    Raises `CapabilityError` where clang or the headers are missing.
    """
    sources = source_texts("testbed", "native", SHARED_SOURCES) | source_texts("testbed", "protocols", ("crc32.h",))
    sources |= source_texts("testbed.protocols.scale_up", "native")
    sources |= source_texts("testbed.protocols.scale_up.domain", "native")
    return compiled("scale-up-domain", ".so", sources, (*FLAGS, *flags), cache, what="the switch of a scale-up domain")


def library() -> Any:
    """The library's functions. Raises as `build`."""
    return load(build())
