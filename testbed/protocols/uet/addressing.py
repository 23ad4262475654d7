"""The address of a fabric endpoint (FEP).

An endpoint is {IP address, [JobID], PIDonFEP, resource index} (UE Specification 1.0, section 3.4.1). With relative
addressing (REL = 1) the JobID scopes the PIDonFEP; with absolute addressing it only authorises.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from testbed.protocols.errors import UsageError

PID_LIMIT: Final = 1 << 12
"""PIDonFEP and resource index have 12 bits."""
JOB_LIMIT: Final = 1 << 24


@lru_cache(maxsize=4096)  # addresses are made per message, of few peers, and parsing one takes microseconds
def _canonical_ip(text: str) -> str:
    """The shortest form of an IPv4 or IPv6 address, so that equal addresses are equal strings. Raises `UsageError`."""
    try:
        if ":" not in text:
            return str(IPv4Address(text))
        address = IPv6Address(text)
    except AddressValueError as error:
        raise UsageError(f"not an IP address: {error}") from None
    if address.scope_id is not None:
        raise UsageError(f"an IPv6 address with a zone is not a fabric address: {text!r}")
    return str(address)


def _check(name: str, value: int, limit: int) -> None:
    if not 0 <= value < limit:
        raise UsageError(f"{name} must be 0 to {limit - 1}, not {value}")


def _parse_index(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise UsageError(f"{name} must be a decimal number from 0 to {PID_LIMIT - 1}, not {text!r}")
    return int(text)


@dataclass(frozen=True, slots=True)
class FepAddress:
    """One resource index of one process at one endpoint. Raises `UsageError` for values that do not fit their field.

    The text form is `ip/pid/ri`, e.g. `10.0.0.1/3/15` or `fd00::1/0/1`; job and addressing mode are not part of it.
    """

    ip: str
    """IPv4 or IPv6, kept in its shortest form."""
    pid_on_fep: int = 0
    """12 bits."""
    resource_index: int = 1
    """12 bits. 0 is reserved for a control channel between providers."""
    job_id: int = 0
    """24 bits."""
    relative: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ip", _canonical_ip(self.ip))
        _check("PIDonFEP", self.pid_on_fep, PID_LIMIT)
        _check("resource index", self.resource_index, PID_LIMIT)
        _check("JobID", self.job_id, JOB_LIMIT)

    def __str__(self) -> str:
        return f"{self.ip}/{self.pid_on_fep}/{self.resource_index}"

    @staticmethod
    def parse(text: str, job_id: int = 0, relative: bool = True) -> FepAddress:
        """The address that `text` (`ip/pid/ri`) names. Raises `UsageError`."""
        parts = text.split("/")
        if len(parts) != 3:
            raise UsageError(f"an endpoint is written ip/pid/ri, not {text!r}")
        pid = _parse_index("PIDonFEP", parts[1])
        return FepAddress(parts[0], pid, _parse_index("resource index", parts[2]), job_id, relative)
