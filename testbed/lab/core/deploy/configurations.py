"""The configurations of FRR that users write (`startup-config`): checked before a lab is touched, and once they run.

vtysh knows every command of FRR, and is asked first. What it cannot know is seen when a daemon reads its file: a peer
group that is not there, or a value that another line excludes. A daemon says so in its log and goes on without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from testbed.base.errors import DriverError, PlanError, Position, Problem, SpecError
from testbed.base.linux.vty import without_secrets
from testbed.lab.core.drivers.routing.vtysh import check_commands, has_vtysh
from testbed.lab.core.model import NETNS, ConfigText, Lab
from testbed.lab.core.plan.lab_plan import SwitchPlan
from testbed.lab.core.render.startup import checked_text

REFUSED = " on config line "
"""The words of a daemon's log about a line of its file that it does not take (FRR lib/vty.c, `vty_read_config`)."""
_READ_BYTES = 1 << 18
"""The beginning of a log that is read: a daemon reads its file first."""
SHOWN = 5


def require_configurations(lab: Lab, *, unless_missing: bool = False) -> None:
    """Have vtysh check what a file says of FRR on the nodes of a lab; nothing where it says nothing.

    Raises `SpecError` with the lines that it does not take, or `PlanError` where they stand in the topology itself; and
    `CapabilityError` where this machine has no vtysh, `unless_missing`. Containers have an FRR of their own: they are
    checked where there is a vtysh here.
    """
    told = [node for node in lab.nodes if node.startup is not None]
    if not told:
        return
    if not has_vtysh() and (unless_missing or all(node.runtime != NETNS for node in told)):
        return
    texts = dict.fromkeys(one for node in told if node.startup is not None for one in node.startup.texts)
    lines = [line for one in texts for line in checked_text(one)]
    wrong: dict[tuple[ConfigText, int], tuple[str, str]] = {}
    for complaint in check_commands("".join(f"{text}\n" for text, _, _ in lines)):
        text, origin, number = lines[complaint.line - 1]
        if number:
            wrong.setdefault((origin, number), (text, complaint.message))
    if wrong:
        raise _refusal(lab, wrong)


def _refusal(lab: Lab, wrong: dict[tuple[ConfigText, int], tuple[str, str]]) -> SpecError | PlanError:
    """The error of lines that vtysh does not take."""
    problems = [
        Problem(
            code="bad-config",
            file=str(Path(lab.source).parent / origin.file) if origin.file else lab.source,
            path=origin.place,
            position=_position(origin, number) if origin.file else None,
            message=f"{'' if origin.file else f'line {number}: '}{message}: {without_secrets(text.strip())}",
            hint="`vtysh` in a node that is up completes commands with the tabulator key",
        )
        for (origin, number), (text, message) in wrong.items()
    ]
    if all(not origin.file for origin, _ in wrong):
        first, *others = problems
        more = f" (and {len(others)} lines more)" if others else ""
        return PlanError(f"{first.message}{more}", field=first.path, code=first.code, hint=first.hint)
    return SpecError(problems)


def _position(origin: ConfigText, number: int) -> Position:
    """Return the place at which a line begins in its file."""
    line = origin.text.splitlines()[number - 1]
    return Position(number, len(line) - len(line.lstrip()) + 1)


def require_taken(speakers: Iterable[SwitchPlan], run: Path) -> None:
    """Raise `DriverError` where a daemon did not take a line of a node's own configuration, with what it said."""
    said = [
        f"{speaker.node}: {line}"
        for speaker in speakers
        if speaker.startup is not None
        for line in refused_lines(run / speaker.node)
    ]
    if said:
        more = [f"... and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
        raise DriverError(
            "FRR does not take all of startup-config:\n" + "\n".join(f"  {line}" for line in [*said[:SHOWN], *more]),
            operation="configure",
        )


def refused_lines(directory: Path) -> Iterator[str]:
    """Yield what the daemons of a node said against lines of their files, each of their run directory once."""
    seen: set[str] = set()
    for path in sorted((*directory.glob("*.out"), *directory.glob("*.log"))):
        try:
            with path.open("rb") as file:
                text = file.read(_READ_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            what = line[line.find("ERROR:") :] if "ERROR:" in line else line
            if REFUSED in line and what not in seen:
                seen.add(what)
                yield f"{path.stem}: {without_secrets(what)}"
