"""Times sends of UDP datagrams: `hop_timer.py DST PORT TOS GAP_US COUNT` prints the median of one in us.

With a gap of 0 they follow each other, and the median is that of runs of 32. Run inside a node by the port benchmarks.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time

PAYLOAD = bytes(1400)
RUN = 32


def main(destination: str, port: int, tos: int, gap_us: float, count: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        item.connect((destination, port))
        for _ in range(100):
            item.send(PAYLOAD)
        took = []
        run = 1 if gap_us else RUN
        for _ in range(count // run):
            if gap_us:
                time.sleep(gap_us / 1e6)
            begin = time.perf_counter_ns()
            for _ in range(run):
                item.send(PAYLOAD)
            took.append((time.perf_counter_ns() - begin) / run / 1e3)
    print(statistics.median(took))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
