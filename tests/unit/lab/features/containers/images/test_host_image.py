"""The image of hosts: what it has of the testbed runs with nothing else of the testbed beside it."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from testbed.endpoints.perftest.registry import TOOLS
from testbed.lab.features.containers.images.container_images import CHECKOUT, load_recipe

ALONE = """
import sys
sys.path[:0] = sys.argv[1:3]
import testbed.endpoints.worker.__main__
from testbed.endpoints.perftest.registry import TOOLS
from testbed.endpoints.worker.transport_registry import worker_transport
for name in ("tcp", "uet", "roce"):
    worker_transport(name)
print(*sorted(TOOLS))
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The Python files of the image, in a directory."""
    for name in load_recipe("host").files:
        if name.startswith("testbed/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, tmp_path / name)
    return tmp_path


@pytest.mark.process
def test_tools_and_workers_need_no_other_part_of_the_testbed(image: Path) -> None:
    """`-I -S`: without the paths of this installation, where the other parts would be found."""
    argv = [sys.executable, "-I", "-S", "-c", ALONE, str(image), sysconfig.get_path("purelib")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(TOOLS)
