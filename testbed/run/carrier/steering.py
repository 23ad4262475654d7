"""The eBPF program that hands connections to carried addresses to our listeners, in a host's network namespace.

It is there as long as this process holds its link: nobody has to take it back. `lab.core.plan.operations.SteerTcp` has
led the packets into the namespace before.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from testbed.base.datapath import bpf, build
from testbed.base.datapath.load import load_plain
from testbed.base.errors import CapabilityError, DriverError
from testbed.run.carrier.frames import Address, mapped

_PROGRAM = "steer"
_LISTENERS, _CARRIED = "listeners", "carried"
_SLOTS = {socket.AF_INET: 0, socket.AF_INET6: 1}


def steering_object(cache: Path | None = None) -> Path:
    """The compiled program, from the cache where it was compiled before. Raises `CapabilityError`."""
    sources = build.source_texts("testbed.run.carrier", "", ("steer.bpf.c",))
    return build.compiled("steer", ".bpf.o", sources, build.BPF_FLAGS, cache, what="the carrier's steering")


class Steering:
    """The program in one network namespace, of which `namespace` is a descriptor. `addresses` are the carried ones of
    other hosts, and `listeners` the sockets that take connections to them, by family.

    Raises `CapabilityError` where the kernel has no such programs (sk_lookup, Linux 5.9), or this process may not.
    """

    def __init__(self, namespace: int, listeners: Mapping[int, socket.socket], addresses: Iterable[Address]) -> None:
        try:
            programs, maps = load_plain(steering_object(), (_PROGRAM,), (_LISTENERS, _CARRIED))
        except DriverError as error:
            raise _lacking(str(error)) from error
        descriptors = [*programs.values(), *maps.values()]
        try:
            for family, listener in listeners.items():
                slot = struct.pack("=I", _SLOTS[socket.AddressFamily(family)])
                bpf.update(maps[_LISTENERS], slot, struct.pack("=Q", listener.fileno()))
            for address in addresses:
                bpf.update(maps[_CARRIED], mapped(address), struct.pack("=I", 1))
            self._link = bpf.attach_socket_lookup(programs[_PROGRAM], namespace)
        except OSError as error:
            raise _lacking(error.strerror or str(error)) from error
        finally:
            for descriptor in descriptors:  # the link keeps the program, and the program its maps
                os.close(descriptor)

    def close(self) -> None:
        """Take the program away."""
        os.close(self._link)


def _lacking(why: str) -> CapabilityError:
    return CapabilityError(
        f"carrying TCP needs eBPF programs that choose sockets (sk_lookup): {why}",
        missing="sk_lookup",
        hint="Linux 5.9 or later with CONFIG_BPF_SYSCALL, and root",
    )
