"""Sends datagrams from one network namespace to another and says what arrived, as JSON.

    guest_traffic.py FROM TO ADDRESS TOS COUNT

The sender goes as fast as its socket lets it. Ends when all have arrived, or none has for `PATIENCE_S`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

PORT = 4791
PAYLOAD_BYTES = 1400
PATIENCE_S = 3.0
ECN_MASK, ECN_CE = 3, 3
BUFFER_BYTES = 8 << 20
SO_RCVBUFFORCE = 33


def socket_in(namespace: str) -> socket.socket:
    """A UDP socket of that namespace; a thread of its own enters it."""
    made: list[socket.socket] = []

    def make() -> None:
        with Path("/run/netns", namespace).open() as file:
            os.setns(file.fileno(), os.CLONE_NEWNET)
        made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


def main(source: str, target: str, address: str, tos: int, count: int) -> dict[str, int | float]:
    receiver, sender = socket_in(target), socket_in(source)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    receiver.bind((address, PORT))
    receiver.settimeout(PATIENCE_S)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)

    def send() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # packets of a thread that moves may overtake others
        for number in range(count):
            sender.sendto(number.to_bytes(PAYLOAD_BYTES, "big"), (address, PORT))

    started = time.monotonic()
    thread = threading.Thread(target=send)
    thread.start()
    received = marked = disordered = 0
    latest = -1
    last = started
    try:
        while received < count:
            data, ancillary, _, _ = receiver.recvmsg(PAYLOAD_BYTES, 64)
            last = time.monotonic()
            received += 1
            marked += ancillary[0][2][0] & ECN_MASK == ECN_CE
            number = int.from_bytes(data, "big")
            disordered += number < latest
            latest = max(latest, number)
    except TimeoutError:
        pass
    thread.join()
    return {"sent": count, "received": received, "ce": marked, "disordered": disordered, "seconds": last - started}


if __name__ == "__main__":
    _, source, target, address, tos, count = sys.argv
    print(json.dumps(main(source, target, address, int(tos), int(count))))
