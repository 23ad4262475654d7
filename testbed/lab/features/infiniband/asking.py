"""Asks a subnet for tables by management datagrams, and is a program of its own: it runs where OpenSM's tools run.

Standard input has a list of questions as JSON, standard output the answers: the 64 bytes of each as hexadecimal digits,
or null where none came. ["smp", LID, attribute, modifier] asks a node (IBTA chapter 14), ["path", source, destination,
manager] asks the manager at a LID for the path between two port GUIDs (section 15.2.5.16).

It imports the standard library alone, and asks by libibmad, as the tools of infiniband-diags do: umad2sim, which is
loaded before it, leads that to ibsim.
"""

import ctypes
import json
import sys

SMI, SMI_DIRECT, SA = 0x01, 0x81, 0x03
"""Management classes."""
DATA_BYTES = 64
TIMEOUT_MS = 1000
_GID_PREFIX = 0xFE80_0000_0000_0000


class PortId(ctypes.Structure):
    """`ib_portid_t` of infiniband/mad.h: whom a datagram is for."""

    _fields_ = (
        ("lid", ctypes.c_int),
        ("hops", ctypes.c_int),
        ("path", ctypes.c_uint8 * 64),
        ("drslid", ctypes.c_uint16),
        ("drdlid", ctypes.c_uint16),
        ("grh_present", ctypes.c_int),
        ("gid", ctypes.c_uint8 * 16),
        ("qp", ctypes.c_uint32),
        ("qkey", ctypes.c_uint32),
        ("sl", ctypes.c_uint8),
        ("pkey_index", ctypes.c_uint),
    )


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libibmad.so.5")
    library.mad_rpc_open_port.restype = ctypes.c_void_p
    library.mad_rpc_close_port.argtypes = (ctypes.c_void_p,)
    library.smp_query_via.restype = ctypes.c_void_p
    library.smp_query_via.argtypes = (
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
    )
    library.ib_path_query_via.restype = ctypes.c_int
    library.ib_path_query_via.argtypes = (ctypes.c_void_p,) * 5
    return library


def _gid(guid: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(((_GID_PREFIX << 64) | guid).to_bytes(16, "big"), 16)


def ask(questions: list[list[object]]) -> list[str | None]:
    """Ask all questions, one after the other."""
    library = _library()
    classes = (ctypes.c_int * 3)(SMI, SMI_DIRECT, SA)
    port = library.mad_rpc_open_port(None, 0, classes, len(classes))
    if not port:
        sys.exit("no HCA answers")
    answers: list[str | None] = []
    try:
        for kind, *arguments in questions:
            data = ctypes.create_string_buffer(2 * DATA_BYTES)
            if kind == "smp":
                lid, attribute, modifier = arguments
                whom = PortId(lid=lid)
                found = library.smp_query_via(data, ctypes.byref(whom), attribute, modifier, TIMEOUT_MS, port)
                answers.append(data.raw[:DATA_BYTES].hex() if found else None)
            else:
                source, destination, manager = arguments
                assert isinstance(source, int)
                assert isinstance(destination, int)
                whom = PortId(lid=manager)
                lid = library.ib_path_query_via(port, _gid(source), _gid(destination), ctypes.byref(whom), data)
                answers.append(data.raw[:DATA_BYTES].hex() if lid > 0 else None)
    finally:
        library.mad_rpc_close_port(port)
    return answers


if __name__ == "__main__":
    json.dump(ask(json.load(sys.stdin)), sys.stdout)
