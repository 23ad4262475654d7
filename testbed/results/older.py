"""Records of earlier versions, turned into the shape of this one before they are validated."""

from __future__ import annotations

from typing import Any


def modernise(document: dict[str, Any]) -> dict[str, Any]:
    """A record's JSON in the present schema. One that lacks what its schema has is left for validation to refuse."""
    if document.get("schema") == 1:
        document = _from_1(document)
    return document


def _from_1(document: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 had one lab, its runs and metrics at the top, and no matrix."""
    rest = {key: value for key, value in document.items() if key not in ("lab", "runs", "metrics")}
    scenario = document.get("scenario")
    written: dict[str, Any] = scenario if isinstance(scenario, dict) else {}
    point: dict[str, Any] = {
        "name": "",
        "values": {},
        "lab": document.get("lab"),
        "transport": written.get("transport"),
        "workload": written.get("workload"),
        "runs": document.get("runs"),
        "metrics": document.get("metrics"),
    }
    return {**rest, "schema": 2, "points": [point]}
