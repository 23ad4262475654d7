"""Answers to requests: JSON, and errors in the form that every page understands."""

from __future__ import annotations

import functools
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from testbed.base.errors import CapabilityError, LabNotFound, Problem, SpecError, TestbedError
from testbed.lab.core.deploy.live import NoSuchNode
from testbed.lab.core.deploy.records.state import StateBusy
from testbed.lab.core.deploy.records.usage import LabInUse

MOST_BODY_BYTES = 1 << 20
"""The largest body of a request that is read."""


class RefusedRequest(TestbedError):
    """A request that is answered with a status of its own. `code` tells a page which refusal it is."""

    def __init__(self, status: int, message: str, *, hint: str | None = None, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code


def not_found(message: str, hint: str | None = None) -> RefusedRequest:
    """Return the error for what is not there."""
    return RefusedRequest(404, message, hint=hint, code="not-found")


def encode(document: object) -> bytes:
    """Encode a document as JSON: data classes by their fields, arrays of numpy as lists."""
    return _encoder().encode(document)


@functools.cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=_otherwise)


def _otherwise(value: object) -> object:
    """Put a value into JSON that msgspec does not know."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, range | frozenset):
        return list(value)
    return str(value)


def json_answer(document: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Make an answer of a document, or hand on one that is made already."""
    if isinstance(document, Response):
        return document
    return Response(encode(document), status, headers, media_type="application/json")


def error_answer(error: TestbedError) -> Response:
    """Make the answer that tells an error: `{"error": {"message", "hint", "code", "problems"}}`."""
    document: dict[str, Any] = {
        "message": error.message,
        "hint": error.hint or "",
        "code": getattr(error, "code", "") or "",
        "problems": list(map(problem_json, error.problems)) if isinstance(error, SpecError) else [],
    }
    return json_answer({"error": document}, status=_status(error))


def problem_json(problem: Problem) -> dict[str, Any]:
    """Return a problem with the place that the page shows it at."""
    at = problem.position
    return {
        "file": problem.file,
        "line": None if at is None else at.line,
        "column": None if at is None else at.column,
        "path": problem.path,
        "message": problem.message,
        "hint": problem.hint or "",
        "code": problem.code,
    }


def _status(error: TestbedError) -> int:
    match error:
        case RefusedRequest():
            return error.status
        case LabNotFound() | NoSuchNode():
            return 404
        case StateBusy() | LabInUse():
            return 409
        case CapabilityError():
            return 501
    return 400


async def body_of(request: Request) -> dict[str, Any]:
    """Read the JSON object that a request brings. Raises `RefusedRequest` for anything else, and for a large one."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RefusedRequest(415, "the body of a request is JSON (Content-Type: application/json)")
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_BODY_BYTES:
            raise RefusedRequest(413, f"the request is larger than {MOST_BODY_BYTES >> 20} MiB")
    try:
        document = msgspec.json.decode(bytes(content) or b"{}")
    except msgspec.DecodeError as error:
        raise RefusedRequest(400, f"the body is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RefusedRequest(400, "the body is no JSON object")
    return document


def whole_number(text: str, name: str, *, least: int = 0, most: int = 1 << 53) -> int:
    """Read a number of an address. Raises `RefusedRequest` for one that is none, or out of bounds."""
    try:
        value = int(text)
    except ValueError as error:
        raise RefusedRequest(400, f"{name}={text}: expected a whole number") from error
    if not least <= value <= most:
        raise RefusedRequest(400, f"{name}={text}: expected {least} to {most}")
    return value


def number(text: str, name: str) -> float:
    """Read a finite number of an address. Raises `RefusedRequest` for anything else."""
    try:
        value = float(text)
    except ValueError as error:
        raise RefusedRequest(400, f"{name}={text}: expected a number") from error
    if not np.isfinite(value):
        raise RefusedRequest(400, f"{name}={text}: expected a number")
    return value
