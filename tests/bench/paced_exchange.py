"""The floor of what a packet costs a transport in user space: datagrams and answers between processes, and no protocol.

    paced_exchange.py PROCESSES PACKETS GAP_US PAYLOAD

Each process sends PACKETS datagrams to the next one, one every GAP_US, and answers each that comes in with 64 bytes: as
data packets and acknowledgements do. The pace finds all of them asleep. Prints the CPU time by data packet in us.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time

SO_RCVBUFFORCE = 33
ANSWER = bytes(64)
PATIENCE_S = 20.0


def exchange(own: socket.socket, remote: tuple[str, int], packets: int, gap_s: float, payload: bytes) -> float:
    """Send, answer and be answered until all is done; return the CPU time that this took (s)."""
    poll = select.epoll()
    poll.register(own, select.EPOLLIN)
    begun_cpu, begun = time.process_time(), time.monotonic()
    sent = answered = served = 0
    while answered < packets or served < packets:
        now = time.monotonic()
        if now - begun > PATIENCE_S:
            raise TimeoutError(f"{answered} of {packets} were answered, {served} came in")
        if sent < packets and now >= begun + sent * gap_s:
            own.sendto(payload, remote)
            sent += 1
        wait_s = begun + sent * gap_s - now if sent < packets else PATIENCE_S
        for _ in poll.poll(max(wait_s, 0.0)):
            data, origin = own.recvfrom(65_536)
            if len(data) == len(ANSWER):
                answered += 1
            else:
                served += 1
                own.sendto(ANSWER, origin)
    return time.process_time() - begun_cpu


def main(processes: int, packets: int, gap_us: int, payload_bytes: int) -> None:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(processes)]
    for item in sockets:
        item.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)  # nothing is lost where a process has to wait
        item.bind(("127.0.0.1", 0))
    results, write = os.pipe()
    children = []
    for number, item in enumerate(sockets):
        child = os.fork()
        if child == 0:
            remote = sockets[(number + 1) % processes].getsockname()
            used = exchange(item, remote, packets, gap_us / 1e6, bytes(payload_bytes))
            os.write(write, f"{used}\n".encode())
            os._exit(0)
        children.append(child)
    os.close(write)
    with os.fdopen(results) as lines:
        used = [float(line) for line in lines]
    ended = [os.waitpid(child, 0)[1] for child in children]
    if any(ended) or len(used) != processes:
        raise SystemExit(f"{len(used)} of {processes} processes told their time")
    print(sum(used) / (packets * processes) * 1e6)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
