"""One end of a TCP flow that is as fast as its CPU. tcp_pump.py receive ADDRESS PORT | send ADDRESS PORT"""

from __future__ import annotations

import contextlib
import socket
import sys

CHUNK_BYTES = 1 << 18


def receive(address: str, port: int) -> None:
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        item, _ = server.accept()
        buffer = bytearray(CHUNK_BYTES)
        with contextlib.suppress(ConnectionError):
            while item.recv_into(buffer):
                pass


def send(address: str, port: int) -> None:
    data = bytes(CHUNK_BYTES)
    with socket.create_connection((address, port)) as item:
        while True:
            item.sendall(data)


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
