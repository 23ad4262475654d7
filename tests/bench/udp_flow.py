"""UDP at a steady rate, and where it ends. Run inside nodes by the port benchmarks.

    udp_flow.py sink PORT                                      counts until it is ended
    udp_flow.py send DST PORT TOS BIT/S SECONDS PAYLOAD [FLOWS [FIRST]]

The sender keeps an absolute schedule (a late packet does not lower the rate); a socket that must wait because its
port is paused waits. FLOWS sockets with source ports of their own take turns: any that are free, or from FIRST on.
"""

from __future__ import annotations

import signal
import socket
import sys
import time

HEADERS_BYTES = 14 + 20 + 8
LONGEST_DEBT_S = 0.05


def sink(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        item.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        item.bind(("", port))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("ready", flush=True)
        while True:
            item.recv(65_536)


def send(
    destination: str,
    port: int,
    tos: int,
    rate_bps: float,
    seconds: float,
    payload_bytes: int,
    flows: int = 1,
    first_port: int = 0,
) -> None:
    sockets = []
    for number in range(flows):
        item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        if first_port:
            item.bind(("", first_port + number))
        item.connect((destination, port))
        sockets.append(item)
    payload = bytes(payload_bytes)
    gap = (payload_bytes + HEADERS_BYTES) * 8 / rate_bps
    due = started = time.monotonic()
    sent = 0
    while due - started < seconds:
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)
        elif now - due > LONGEST_DEBT_S:
            due = now  # it was paused: what could not be sent is not made up for
            if now - started > seconds:
                break
        try:
            sockets[sent % flows].send(payload)
        except ConnectionRefusedError:
            continue  # nobody listens there: an ICMP answer to an earlier packet
        sent += 1
        due += gap
    print(sent, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        sink(int(sys.argv[2]))
    else:
        send(
            sys.argv[2],
            int(sys.argv[3]),
            int(sys.argv[4]),
            float(sys.argv[5]),
            float(sys.argv[6]),
            int(sys.argv[7]),
            *map(int, sys.argv[8:]),
        )
