"""The compiled module of sending flows, built for a test: those of a build are not there where all is interpreted."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from testbed.base.files import CHECKOUT

NAME = "testbed.run.flows.native.sending"
SOURCE = CHECKOUT / "testbed" / "run" / "flows" / "native" / "sending.c"


@cache
def native_sending() -> Any:
    """Return its class `Sending`. Skips the test where there is no C compiler or are no headers of Python's."""
    compiler = next((found for name in ("gcc", "clang", "cc") if (found := shutil.which(name))), None)
    include = sysconfig.get_paths()["include"]
    if compiler is None or not (Path(include) / "Python.h").is_file():
        pytest.skip("there is no C compiler, or no Python.h")
    directory = mkdtemp(prefix="testbed-native-")
    try:
        target = f"{directory}/sending.so"
        words = ["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
        words += ["-Wno-cast-function-type", "-fPIC", "-shared", f"-I{include}", str(SOURCE), "-o", target]
        done = subprocess.run([compiler, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        spec = importlib.util.spec_from_file_location(NAME, target, loader=ExtensionFileLoader(NAME, target))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules.pop(NAME, None)  # other tests have what a build has
    finally:
        shutil.rmtree(directory)
    return module.Sending
