"""What the docs say of the lab VM is true: the commands of each page run in their order, in a VM of the tests' own."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import name_of, pages_of
from doc_runner import PageRun
from lab_vm import BUILD_TIMEOUT_S, COMMAND_TIMEOUT_S, command_line, skip_without_tools

pytestmark = [pytest.mark.labvm, pytest.mark.timeout(7200)]


@pytest.fixture
def private_vm() -> Iterator[dict[str, str]]:
    """The environment in which `vm` is a machine of the test's own, which is gone at the end."""
    skip_without_tools()
    built = command_line("vm", "build", timeout_s=BUILD_TIMEOUT_S)
    assert built.returncode == 0, built.stderr
    with tempfile.TemporaryDirectory(prefix="vm-", dir="/tmp") as directory:  # short: it holds sockets
        yield {**os.environ, "TESTBED_VM_DIR": directory}


@pytest.mark.parametrize("page", pages_of("labvm"), ids=name_of)
def test_page(page: Path, private_vm: dict[str, str], tmp_path: Path) -> None:
    run = PageRun(page, tmp_path, private_vm, timeout_s=3 * COMMAND_TIMEOUT_S)
    try:
        run.run("labvm")
    finally:
        run.lab("vm", "down")
