"""Where a message goes: the address of a fabric endpoint (FEP), and the UET address structure that describes one.

An endpoint is {IP address, [JobID], PIDonFEP, resource index} (UE Specification 1.0, section 3.4.1). With relative
addressing (REL = 1) the JobID scopes the PIDonFEP; with absolute addressing it only authorises.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from testbed.protocols.errors import DecodeError, UsageError

PID_LIMIT: Final = 1 << 12
"""PIDonFEP and resource index have 12 bits."""
JOB_LIMIT: Final = 1 << 24
INITIATOR_LIMIT: Final = 1 << 32
ADDRESS_VERSION: Final = 0

_LAYOUT: Final = struct.Struct(">BBHH16sHHI")
ADDRESS_BYTES: Final = _LAYOUT.size
_NUM_RI_AT: Final = 24
_LOW_12: Final = PID_LIMIT - 1


class AddressFlag(IntFlag):
    """`flags` of the UET address (table 2-10): which fields are valid, and how to read them."""

    FEP_CAPS_VALID = 0x01
    ADDRESS_VALID = 0x02
    PID_VALID = 0x04
    RI_VALID = 0x08
    INITIATOR_VALID = 0x10
    ABSOLUTE = 0x20
    IPV6 = 0x40
    MTU_LIMITED = 0x80
    """Messages are no longer than one packet."""


class FepCapability(IntFlag):
    """`fep_caps` of the UET address. Bit 6 is in the reference provider alone, the others in two sources or more."""

    AI_BASE = 0x01
    AI_FULL = 0x02
    HPC = 0x04
    REORDER = 0x40
    OPTIMISED_NON_MATCHING = 0x80
    """Small and medium request headers are understood."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UetAddress:
    """The UET address structure (table 2-10), by which endpoints make themselves known out of band.

    A field that is None is not valid in it. Raises `UsageError` for values that do not fit their field.

    Encoding: 30 bytes, big-endian, in the order of the table: version:8, flags:8, fep_caps:16, rsvd:4 pid_on_fep:12,
    fabric address:128 (IPv4 in its first four bytes), rsvd:4 start_ri:12, rsvd:4 num_ri:12, initiator_id:32. The
    sources agree on fields and flags, not on a serialisation, which each keeps to itself: the reference provider has a
    C structure in this order with 8 bits of capabilities, another libfabric provider puts the fabric address last and
    gives version and flags 16 bits each. Only `_LAYOUT` and the offset beside it know.
    """

    ip: str | None = None
    pid_on_fep: int | None = None
    start_ri: int | None = None
    """First of `num_ri` resource indices."""
    num_ri: int = 1
    initiator_id: int | None = None
    """What the endpoint's own requests carry as initiator, for receives that ask for one."""
    fep_caps: int | None = None
    """`FepCapability` bits."""
    relative: bool = True
    mtu_limited: bool = False

    def __post_init__(self) -> None:
        if self.ip is not None:
            object.__setattr__(self, "ip", _canonical_ip(self.ip))
        if self.pid_on_fep is not None:
            _check("PIDonFEP", self.pid_on_fep, PID_LIMIT)
        if self.initiator_id is not None:
            _check("initiator ID", self.initiator_id, INITIATOR_LIMIT)
        if self.fep_caps is not None:
            _check("FEP capabilities", self.fep_caps, 1 << 16)
        if self.start_ri is None:
            if self.num_ri != 1:
                raise UsageError("a number of resource indices needs a first one")
            return
        _check("first resource index", self.start_ri, PID_LIMIT)
        if not 1 <= self.num_ri < PID_LIMIT or self.start_ri + self.num_ri > PID_LIMIT:
            raise UsageError(f"{self.num_ri} resource indices from {self.start_ri} are not within 0 to {PID_LIMIT - 1}")

    def to_fep(self, job_id: int, nth: int = 0) -> FepAddress:
        """The `nth` resource index of this endpoint. Raises `UsageError` where a field for it is missing."""
        if self.ip is None or self.pid_on_fep is None or self.start_ri is None:
            raise UsageError("the UET address lacks its fabric address, PIDonFEP or resource indices")
        _check("number of the resource index", nth, self.num_ri)
        return FepAddress(self.ip, self.pid_on_fep, self.start_ri + nth, job_id, self.relative)

    def encode(self) -> bytes:
        """`ADDRESS_BYTES` bytes."""
        flags = (0 if self.relative else AddressFlag.ABSOLUTE) | (AddressFlag.MTU_LIMITED if self.mtu_limited else 0)
        fabric_address = b""
        if self.ip is not None:
            flags |= AddressFlag.ADDRESS_VALID
            if ":" in self.ip:
                flags |= AddressFlag.IPV6
                fabric_address = IPv6Address(self.ip).packed
            else:
                fabric_address = IPv4Address(self.ip).packed
        if self.fep_caps is not None:
            flags |= AddressFlag.FEP_CAPS_VALID
        if self.pid_on_fep is not None:
            flags |= AddressFlag.PID_VALID
        if self.start_ri is not None:
            flags |= AddressFlag.RI_VALID
        if self.initiator_id is not None:
            flags |= AddressFlag.INITIATOR_VALID
        return _LAYOUT.pack(
            ADDRESS_VERSION,
            int(flags),
            self.fep_caps or 0,
            self.pid_on_fep or 0,
            fabric_address,
            self.start_ri or 0,
            0 if self.start_ri is None else self.num_ri,
            self.initiator_id or 0,
        )

    @staticmethod
    def decode(data: bytes | memoryview) -> UetAddress:
        """The reverse of `encode`; reserved bits and fields that are not valid are ignored. Raises `DecodeError`."""
        if len(data) != ADDRESS_BYTES:
            raise DecodeError(
                min(len(data), ADDRESS_BYTES), f"a UET address has {ADDRESS_BYTES} bytes, not {len(data)}"
            )
        version, flags, caps, pid, fabric_address, start_ri, num_ri, initiator = _LAYOUT.unpack(data)
        if version != ADDRESS_VERSION:
            raise DecodeError(0, f"version {version} of the UET address is not known")
        start_ri &= _LOW_12
        num_ri &= _LOW_12
        ip: str | None = None
        if flags & AddressFlag.ADDRESS_VALID:
            ip = str(IPv6Address(fabric_address) if flags & AddressFlag.IPV6 else IPv4Address(fabric_address[:4]))
        has_ri = bool(flags & AddressFlag.RI_VALID)
        if has_ri and (num_ri == 0 or start_ri + num_ri > PID_LIMIT):
            raise DecodeError(_NUM_RI_AT, f"{num_ri} resource indices from {start_ri}")
        return UetAddress(
            ip=ip,
            pid_on_fep=pid & _LOW_12 if flags & AddressFlag.PID_VALID else None,
            start_ri=start_ri if has_ri else None,
            num_ri=num_ri if has_ri else 1,
            initiator_id=initiator if flags & AddressFlag.INITIATOR_VALID else None,
            fep_caps=caps if flags & AddressFlag.FEP_CAPS_VALID else None,
            relative=not flags & AddressFlag.ABSOLUTE,
            mtu_limited=bool(flags & AddressFlag.MTU_LIMITED),
        )
