"""The machines that a lab is to be spread over, as its topology file names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LabMachine:
    """A machine that is to have a part of a lab.

    `ssh` is how it is reached ([user@]host[:port][/directory]). `underlay` is the interface whose address the other
    machines reach it at; "" for the one that SSH came in by. It gets its share of what is placed by `weight`, and the
    nodes whose names match one of the patterns `nodes`.
    """

    name: str
    ssh: str
    underlay: str = ""
    weight: int = 1
    nodes: tuple[str, ...] = ()
