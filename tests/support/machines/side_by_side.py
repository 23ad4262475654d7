"""Which tests of a tier may run beside each other, in several processes (`--dist loadgroup`).

The tests of a file run in their order in one process, which shares a lab or a virtual machine among them. Files are
handed out as a process gets free, so that both end at about the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdist.scheduler import LoadScopeScheduling

NETNS, VM, DOCKER = "tests/integration/netns", "tests/integration/vm", "tests/integration/docker"
CONSOLE = "tests/browser/console/"
"""Tests of one lab, one console and one browser, which the first of them starts."""
DOCS = f"{NETNS}/test_docs.py"
IMAGE = f"{VM}/test_image.py"
BEGUN_FIRST = (DOCKER, IMAGE, f"{VM}/test_vagrant_up.py", DOCS)
"""Files and directories that take longest: begun last, they would run on when all others have ended."""
NEVER_BESIDE_EACH_OTHER = tuple(f"{NETNS}/test_{name}.py" for name in ("interrupts", "lifecycle", "port_cleanup"))
"""Files that kill labs at every point of their life, many times over, and count what the machine has left."""
OTHER_MACHINES = (IMAGE, f"{VM}/test_debian_13.py", f"{VM}/test_vagrant")
"""What is not the lab VM, which is booted once for all its tests: with a second one beside it, daemons of FRR
in there may get too little of the CPU to keep their sessions up."""
PAGES_OF_THE_DEMO = (
    "README.md",
    "docs/concepts/convergence.md",
    "docs/concepts/scale-model.md",
    "docs/concepts/trust.md",
    "docs/guides/ci-with-pytest.md",
    "docs/guides/console.md",
    "docs/guides/libfabric.md",
    "docs/guides/mininet.md",
    "docs/guides/nodes.md",
    "docs/guides/programs.md",
    "docs/guides/scenarios.md",
    "docs/guides/soft-rdma.md",
    "docs/guides/uet.md",
    "docs/start/first-lab.md",
)
"""Pages whose labs are `demo` and `uec-spray`, or that use the machine's loopback. A lab's name is the machine's, so
that of two pages that deploy the same neither can run beside the other; no other page has a lab of these names."""


def scope_of(nodeid: str) -> str:
    """Return what a test shares with all those that must run in the same process: its file, or a name of its own."""
    file, _, test = nodeid.partition("::")
    if file in NEVER_BESIDE_EACH_OTHER:
        return "kills labs"
    if file.startswith(CONSOLE):
        return CONSOLE
    if file.startswith(f"{DOCKER}/"):
        return DOCKER  # they share an engine, take it away, and look for containers that nobody removed
    if file.startswith(f"{VM}/") and not file.startswith(OTHER_MACHINES):
        return "the lab VM"
    if file == DOCS and test.partition("[")[2].removesuffix("]") in PAGES_OF_THE_DEMO:
        return f"{file}, the demo"
    return file


def begun_first(files: Sequence[str]) -> list[int]:
    """Return the order in which tests are begun, as places in `files`, the file of each: as they come, but for some."""
    rank = {file: number for number, file in enumerate(BEGUN_FIRST)}
    named = [DOCKER if file.startswith(f"{DOCKER}/") else file for file in files]
    return sorted(range(len(files)), key=lambda place: rank.get(named[place], len(rank)))


class SideBySide(LoadScopeScheduling):
    """Shares the files among the processes in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
