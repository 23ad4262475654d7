"""What the docs say of labs on this machine is true: the commands of each page run in their order."""

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import name_of, pages_of
from doc_runner import PageRun

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]

ALONE = ("perftest-tools.md",)
"""Pages whose senders give up where they wait for the CPU."""
THOROUGH = (
    *("ci-with-pytest.md", "mininet.md", "networks.md", "perftest-tools.md", "qos.md", "roce.md", "scenarios.md"),
    *("convergence.md", "pfc-agent.md", "port-data-path.md", "topology-file.md", "trust.md"),
    *("changing-a-lab.md", "console.md", "nodes.md", "other-tools.md", "planes.md", "programs.md", "services.md"),
    *("switch-configuration.md", "switch-telemetry.md", "uet.md"),
    *(
        "back-end-designs.md",
        "exercises.md",
        "first-lab.md",
        "infiniband.md",
        "infiniband-data-path.md",
        "libfabric.md",
    ),
    *(
        "isolation.md",
        "nvme-tcp.md",
        "pooled-memory.md",
        "scale-model.md",
        "scale-up.md",
        "scale-up-links.md",
        "scale-up-scenarios.md",
        "tenants.md",
    ),
)
"""Long pages whose verbs and files other tests use, too."""


def _pages() -> list[Any]:
    return [
        pytest.param(
            page,
            id=name_of(page),
            marks=[
                *([pytest.mark.timed] if page.name in ALONE else []),
                *([pytest.mark.thorough] if page.name in THOROUGH else []),
            ],
        )
        for page in pages_of("netns")
    ]


@pytest.mark.parametrize("page", _pages())
def test_page(page: Path, sandbox: Any) -> None:
    _execute(page, "netns", sandbox)


@pytest.mark.thorough
@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in pages_of("torch")])
def test_page_with_torch(page: Path, sandbox: Any) -> None:
    """Debian's python3-torch is 638 MB, which no gate installs."""
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip("apt-get install python3-torch")
    _execute(page, "torch", sandbox)


@pytest.mark.thorough
@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in pages_of("jax")])
def test_page_with_jax(page: Path, sandbox: Any) -> None:
    """JAX's wheels are 623 MB, which no gate installs."""
    if find_spec("jax") is None:
        pytest.skip("pip install jax")
    _execute(page, "jax", sandbox)


def _execute(page: Path, tier: str, sandbox: Any) -> None:
    run = PageRun(page, sandbox.work, sandbox.environment)
    try:
        run.run(tier)
    finally:
        run.destroy()
