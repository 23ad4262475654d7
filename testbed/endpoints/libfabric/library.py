"""The provider as a library, compiled once for each version of its source with the headers of libfabric that are there.

It fits whatever libfabric a program has, from release 1.17 on (`testbed/native/libfabric/provider.c`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testbed.base.datapath.build import compiled, source_texts
from testbed.base.errors import CapabilityError

FILE_NAME: Final = "libuet-fi.so"
"""As libfabric looks for it in the directories of FI_PROVIDER_PATH (fi_provider(7))."""
FLAGS: Final = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden")
PACKAGE: Final = "libfabric-dev"


def provider_library(cache: Path | None = None) -> Path:
    """Return the compiled library, from the cache where this source was compiled before.

    Raises `CapabilityError` where clang or libfabric's headers are missing.
    """
    sources = source_texts("testbed", "native/libfabric")
    try:
        return compiled("libuet-fi", ".so", sources, FLAGS, cache, what="the libfabric provider")
    except CapabilityError as error:
        if error.missing == "clang":
            raise
        raise CapabilityError(str(error), missing=PACKAGE, hint=f"apt-get install {PACKAGE} libc6-dev") from None
