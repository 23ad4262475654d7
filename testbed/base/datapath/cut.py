"""The eBPF program of links that are cut between two machines, loaded."""

from __future__ import annotations

from pathlib import Path

from testbed.base.datapath import build
from testbed.base.datapath.load import load_plain

PROGRAM = "cut"


def cut_object(cache: Path | None = None) -> Path:
    """The compiled program, from the cache where it was compiled before. Raises `CapabilityError`."""
    sources = build.source_texts("testbed.base.datapath", "programs", ("cut.bpf.c",))
    return build.compiled(PROGRAM, ".bpf.o", sources, build.BPF_FLAGS, cache, what="what joins the halves of a link")


def load_cut() -> int:
    """Return a descriptor of the program, which lives as long as that or a filter has it. Raises `CapabilityError`,
    `DriverError`."""
    programs, _ = load_plain(cut_object(), (PROGRAM,), ())
    return programs[PROGRAM]
