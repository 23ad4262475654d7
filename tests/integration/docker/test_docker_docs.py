"""What the docs say of containers is true: the commands of each page run in their order."""

from pathlib import Path
from typing import Any

import pytest
from doc_blocks import name_of, pages_of
from doc_runner import PageRun

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("page", pages_of("docker"), ids=name_of)
def test_page(page: Path, sandbox: Any, runner_image: str) -> None:
    """What a page has built is there: a command has four minutes, and Debian's mirror may be slow."""
    run = PageRun(page, sandbox.work, sandbox.environment)
    try:
        run.run("docker")
    finally:
        run.destroy()
