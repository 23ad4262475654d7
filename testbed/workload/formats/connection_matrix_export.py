"""htsim connection matrices (`.cm`), written: a flow for each transfer, a trigger for each set of waits.

Source: as in `connection_matrix`. A flow activates two triggers at most (`send_done_trigger`, `recv_done_trigger`) and
starts either at a time or by one trigger; what goes beyond that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from testbed.workload.formats.export import Exported, ExportError, description_left_out, transfers_alone
from testbed.workload.steps import Transfer, Workload

FORMAT = "a connection matrix"
INT32_MAX = (1 << 31) - 1
_LABEL = re.compile(r"flow ([1-9][0-9]{0,8})\Z")


def encode_connection_matrix(workload: Workload) -> Exported:
    """`workload` as a `.cm` text, flows in the order of its steps.

    Raises `ExportError` for computing, scale-up transfers, a transfer with waits and a start time, and a transfer
    whose end starts more than two different sets of others.
    """
    transfers, reasons = transfers_alone(workload)
    reasons += [
        f"step {step.number} waits for others and for a start time"
        for step in transfers
        if step.after and step.start_ns
    ]
    triggers = {after: number for number, after in enumerate(_wait_sets(transfers), start=1)}
    fired: dict[int, list[int]] = {}
    for after, number in triggers.items():
        for before in after:
            fired.setdefault(before, []).append(number)
    reasons += [
        f"step {before} starts {len(numbers)} different sets of others"
        for before, numbers in fired.items()
        if len(numbers) > 2
    ]
    if reasons:
        hint = "a flow has a start time or one trigger, and its end activates two triggers at most"
        raise ExportError(FORMAT, reasons, hint=hint)
    ids = _flow_ids(transfers)
    sources = _started_from(transfers, triggers)
    lines = [f"Nodes {workload.ranks}", f"Connections {len(transfers)}"]
    if triggers:
        lines.append(f"Triggers {len(triggers)}")
    for step in transfers:
        begin = f"trigger {triggers[step.after]}" if step.after else f"start {step.start_ns * 1000}"
        flow_id = f" id {ids[step.number]}" if step.number in ids else ""
        done = _done(step, fired.get(step.number, ()), sources)
        lines.append(f"{step.source}->{step.destination}{flow_id} {begin} size {step.size_bytes}{done}")
    for after, number in triggers.items():
        lines.append(f"trigger id {number} " + ("oneshot" if len(after) == 1 else f"barrier count {len(after)}"))
    return Exported(text="\n".join([*lines, ""]), left_out=tuple(_left_out(workload, transfers, ids)))


def _wait_sets(transfers: Sequence[Transfer]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(step.after for step in transfers if step.after))


def _flow_ids(transfers: Sequence[Transfer]) -> dict[int, int]:
    """Ids as the labels have them (`flow 7`), if those are unlike each other and nothing else needs one."""
    labels = {step.number: match for step in transfers if (match := _LABEL.match(step.label))}
    named = {number: int(match[1]) for number, match in labels.items()}
    unlike = len(set(named.values())) == len(named)
    if unlike and all(step.number in named or (not step.label and not step.after) for step in transfers):
        return named
    return {step.number: index for index, step in enumerate(transfers, start=1)}


def _started_from(transfers: Sequence[Transfer], triggers: Mapping[tuple[int, ...], int]) -> dict[int, frozenset[int]]:
    """The ranks that send what each trigger starts."""
    sources: dict[int, set[int]] = {}
    for step in transfers:
        if step.after:
            sources.setdefault(triggers[step.after], set()).add(step.source)
    return {number: frozenset(ranks) for number, ranks in sources.items()}


def _done(step: Transfer, fired: Sequence[int], sources: Mapping[int, frozenset[int]]) -> str:
    """A trigger whose flows begin where the transfer ends is the receiver's; the sender's otherwise."""
    if not fired:
        return ""
    at_receiver = [number for number in fired if step.destination in sources[number]]
    if len(fired) == 1:
        return f" {'recv' if at_receiver else 'send'}_done_trigger {fired[0]}"
    received = at_receiver[-1] if at_receiver else fired[1]
    sent = fired[0] if received == fired[1] else fired[1]
    return f" send_done_trigger {sent} recv_done_trigger {received}"


def _left_out(workload: Workload, transfers: Sequence[Transfer], ids: Mapping[int, int]) -> list[str]:
    left_out = description_left_out(workload)
    if any(step.label != (f"flow {ids[step.number]}" if step.number in ids else "") for step in transfers):
        left_out.append("labels: flows have numbers")
    if any(step.size_bytes > INT32_MAX for step in transfers):
        left_out.append(f"nothing, but htsim reads sizes of more than {INT32_MAX} bytes wrongly where it keeps 32 bits")
    return left_out
