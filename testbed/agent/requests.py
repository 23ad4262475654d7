"""Requests to an agent as they are written: one JSON object a line, its fields read one by one, with their limits.

Whatever is wrong is told with its place: the offset in the line where it is no JSON, else the field.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NoReturn

from testbed.transport.uet.addressing import FepAddress
from testbed.transport.uet.errors import UetError, UsageError

LONGEST_LINE = 1 << 20
"""Bytes of a request or an answer, without its newline."""
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class RequestError(UetError):
    """A request that is not carried out. `code` is for programs: `json`, `field`, `unknown`, `usage`, `limit`, `os`."""

    def __init__(self, code: str, message: str, *, offset: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.field = field


def parse_line(line: bytes) -> dict[str, Json]:
    """The object in a line. Raises `RequestError` with the offset in it, whatever the bytes."""
    try:
        text = line.decode()
        value = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RequestError("json", f"not UTF-8: {error.reason}", offset=error.start) from None
    except json.JSONDecodeError as error:
        raise RequestError("json", error.msg, offset=len(text[: error.pos].encode())) from None
    except RecursionError:
        raise RequestError("json", "nested too deeply", offset=0) from None
    except ValueError as error:
        raise RequestError("json", str(error), offset=0) from None
    if not isinstance(value, dict):
        raise RequestError("json", "a request is an object", offset=0)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class Fields:
    """The fields of an object, each to be read once; `finish` refuses those that nobody has read.

    Every method raises `RequestError` that names the field. A default makes a field optional.
    """

    def __init__(self, values: dict[str, Json], within: str = "") -> None:
        self._values = dict(values)
        self._within = within

    def _fail(self, name: str, message: str) -> NoReturn:
        raise RequestError("field", message, field=self._within + name)

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def _take(self, name: str) -> Json:
        value = self._values.pop(name, None)
        if value is None:
            self._fail(name, "is missing")
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        if default is not None and not self.has(name):
            self._values.pop(name, None)
            return default
        value = self._take(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._fail(name, f"must be a whole number from {low} to {high}")
        return value

    def optional(self, name: str, low: int, high: int) -> int | None:
        """A whole number, or None where there is none."""
        if self.has(name):
            return self.integer(name, low, high)
        self._values.pop(name, None)
        return None

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        if default is not None and not self.has(name):
            self._values.pop(name, None)
            return default
        value = self._take(name)
        if not isinstance(value, bool):
            self._fail(name, "must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        if default is not None and not self.has(name):
            self._values.pop(name, None)
            return default
        value = self._take(name)
        if not isinstance(value, str):
            self._fail(name, "must be a string")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of `choices`."""
        value = self.text(name, default)
        if value not in choices:
            self._fail(name, f"must be one of {', '.join(choices)}")
        return value

    def choices(self, name: str, choices: Sequence[str]) -> list[str]:
        """A list of some of `choices`."""
        value = self._take(name)
        chosen: list[str] = []
        for item in value if isinstance(value, list) else [None]:
            if not isinstance(item, str) or item not in choices:
                self._fail(name, f"must be a list of {', '.join(choices)}")
            chosen.append(item)
        return chosen

    def octets(self, name: str) -> bytes:
        """Bytes, written in hexadecimal; none by default."""
        value = self.text(name, "")
        try:
            return bytes.fromhex(value)
        except ValueError:
            self._fail(name, "must be bytes in hexadecimal")

    def address(self, name: str, job_id: int) -> FepAddress:
        """An endpoint of a job: `ip`, or `ip/pid/ri`."""
        value = self.text(name)
        try:
            return FepAddress.parse(value, job_id) if "/" in value else FepAddress(value, job_id=job_id)
        except UsageError as error:
            self._fail(name, str(error))

    def object(self, name: str) -> dict[str, Json]:
        """A nested object, empty by default."""
        value = self._values.pop(name, None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._fail(name, "must be an object")
        return value

    def finish(self) -> None:
        """Refuse what nobody has asked for."""
        for name in self._values:
            self._fail(name, "is not a field of this request")
