"""The image of the lab VM is built once. The gate does so beside labs: tests of the lab VM boot it from the cache."""

import pytest
from lab_vm import BUILD_TIMEOUT_S, command_line, skip_without_tools

pytestmark = [pytest.mark.image, pytest.mark.timeout(BUILD_TIMEOUT_S)]


def test_it_is_built_once() -> None:
    skip_without_tools()
    first = command_line("vm", "build", timeout_s=BUILD_TIMEOUT_S)
    assert first.returncode == 0, first.stderr
    again = command_line("vm", "build", timeout_s=BUILD_TIMEOUT_S)
    assert again.stdout.startswith("image of the lab VM: in the cache; "), again.stdout + again.stderr
    assert again.stdout.partition(";")[2] == first.stdout.partition(";")[2], "the same one"
