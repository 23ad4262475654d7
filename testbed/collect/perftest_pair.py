"""What a perftest run between two NICs with RDMA devices is told: its command line, UDP ports, and when it listens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.collect.perftest import PerftestTest
from testbed.model import End

PORT = 18515
"""perftest's own TCP port for what the two ends tell each other first."""
QP_TIMEOUT = 18
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PerftestJob:
    """What is run. `client` and `server` are NIC ports with an RDMA device.

    `iterations` counts messages of each queue pair; `traffic_class` is the IPv4 type of service of every packet
    (DSCP << 2 | ECN, RFC 2474 and RFC 3168); a queue pair waits 4.096 us * 2^`qp_timeout` for an acknowledgement
    (InfiniBand 9.7.6.1.3; the default is 1.07 s: labs are slow). Latency tests have one queue pair, atomics 8 bytes.

    With `duration_s` messages are sent for so long instead, after `margin_s` and before another that are not measured.
    `flow_labels` decide the packets' UDP source ports, one for each queue pair (`udp_source_port`). `path_mtu` and
    `tx_depth` (messages under way) are perftest's and the port's where they are None. `atomic_type` is FETCH_AND_ADD or
    CMP_AND_SWAP.
    """

    test: PerftestTest
    client: End
    server: End
    size_bytes: int = 65536
    iterations: int = 1000
    queue_pairs: int = 1
    traffic_class: int = 0
    qp_timeout: int = QP_TIMEOUT
    port: int = PORT
    timeout_s: float = TIMEOUT_S
    duration_s: int | None = None
    margin_s: int = 1
    flow_labels: tuple[int, ...] = ()
    path_mtu: int | None = None
    tx_depth: int | None = None
    atomic_type: str | None = None

    def __post_init__(self) -> None:
        if self.test.is_latency and self.queue_pairs != 1:
            raise ValueError(f"{self.test} has one queue pair, not {self.queue_pairs}")
        if not 0 <= self.traffic_class <= 255:
            raise ValueError(f"a traffic class is 0 to 255, not {self.traffic_class}")
        if min(self.size_bytes, self.iterations, self.queue_pairs) < 1:
            raise ValueError("sizes, iterations and queue pairs are at least 1")

    def arguments(self, device: str, gid_index: int) -> list[str]:
        """The command line that both ends share."""
        argv = [self.test.value, "-F", "-d", device, "-x", str(gid_index)]
        if self.duration_s is None:
            argv += ["-n", str(self.iterations)]
        else:
            argv += ["-D", str(self.duration_s + 2 * self.margin_s), "-f", str(self.margin_s)]
        argv += ["-p", str(self.port), "-u", str(self.qp_timeout)]
        if not self.test.is_atomic:
            argv += ["-s", str(self.size_bytes)]
        elif self.atomic_type is not None:
            argv += ["-A", self.atomic_type]
        if not self.test.is_latency:
            argv += ["-q", str(self.queue_pairs), "--report_gbits"]
        if self.path_mtu is not None:
            argv += ["-m", str(self.path_mtu)]
        if self.tx_depth is not None and not self.test.is_latency:
            argv += ["-t", str(self.tx_depth)]
        if self.flow_labels:
            argv.append("--flow_label=" + ",".join(map(str, self.flow_labels)))
        return [*argv, f"--tclass={self.traffic_class}"] if self.traffic_class else argv


ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA)."""
SOURCE_PORTS = (0xC000, 0x10000)
"""What flow labels become (include/rdma/ib_verbs.h, IB_ROCE_UDP_ENCAP_VALID_PORT_MIN)."""


def udp_source_port(flow_label: int) -> int:
    """Of packets of a queue pair with this flow label, which is not 0 (ib_verbs.h, rdma_flow_label_to_udp_sport)."""
    low, high = flow_label & 0x03FFF, flow_label & 0xFC000
    return SOURCE_PORTS[0] | (low ^ high >> 14)


_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp (proc(5))."""


def listens(pid: int, port: int) -> bool:
    """Whether something in the process's namespace listens on the TCP port."""
    for family in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
