"""What the docs say of labs on this machine is true: the commands of each page run in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doc_blocks import name_of, pages_of
from doc_runner import PageRun

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", pages_of("netns"), ids=name_of)
def test_page(page: Path, sandbox: Any) -> None:
    run = PageRun(page, sandbox.work, sandbox.environment)
    try:
        run.run("netns")
    finally:
        run.destroy()
