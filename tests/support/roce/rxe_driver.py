"""Drives queue pairs of the kernel's soft RDMA by pyverbs: a JSON object in a line asks, one in a line answers.

It runs with the system's Python in the network namespace of the device, and with the machine's own sysfs, where the
counters are. A question is {"do": NAME, ...}, where NAME is a method of `Driver`; an error is answered as
{"error": text}.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
QUEUE = 256
MOST_READS = 16
HOPS = 64
SERVICES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
OPERATIONS = {
    "send": e.IBV_WR_SEND,
    "send-immediate": e.IBV_WR_SEND_WITH_IMM,
    "send-invalidate": e.IBV_WR_SEND_WITH_INV,
    "write": e.IBV_WR_RDMA_WRITE,
    "write-immediate": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "compare-swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch-add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
"""As `enum ibv_mtu` numbers them."""
REMOTE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC
MAPPED = 20 * "0" + "ffff"
"""The prefix of an IPv4 address as a GID."""
COUNTERS = Path("/sys/class/infiniband")
POLL_S = 0.001


def route_to(address: str, gid_index: int, traffic_class: int = 0) -> GlobalRoute:
    """The route to the GID of an IP address (of IPv4: ::ffff:a.b.c.d), from the GID of that index of ours."""
    digits = ip_address(address).packed.hex()
    if len(digits) == 8:
        digits = MAPPED + digits
    gid = ":".join(digits[at : at + 4] for at in range(0, 32, 4))
    return GlobalRoute(dgid=GID(gid), sgid_index=gid_index, hop_limit=HOPS, traffic_class=traffic_class)


class Driver:
    """One device and one registered buffer; queue pairs by their QPN."""

    def __init__(self, device: str, size: int) -> None:
        self.device = device
        self.context = Context(name=device)
        self.domain = PD(self.context)
        self.region = MR(self.domain, size, REMOTE)
        self.queues: dict[int, tuple[QP, CQ]] = {}
        self.handles: list[AH] = []
        """Address handles, which must outlive the sending."""
        self.gids = [str(self.context.query_gid(PORT, index)) for index in range(4)]

    def memory(self) -> dict[str, Any]:
        return {"address": self.region.buf, "rkey": self.region.rkey, "gids": self.gids}

    def create(self, service: str = "RC") -> dict[str, Any]:
        completions = CQ(self.context, 2 * QUEUE)
        capacity = QPCap(max_send_wr=QUEUE, max_recv_wr=QUEUE, max_send_sge=1, max_recv_sge=1)
        queue = QP(self.domain, QPInitAttr(SERVICES[service], scq=completions, rcq=completions, cap=capacity))
        self.queues[queue.qp_num] = (queue, completions)
        return {"qpn": queue.qp_num}

    def connect(
        self,
        qpn: int,
        address: str,
        gid_index: int,
        remote_qpn: int,
        send_psn: int = 0,
        receive_psn: int = 0,
        mtu: int = 1024,
        timeout: int = 18,
        retry_count: int = 7,
        rnr_retry: int = 7,
        min_rnr_timer: int = 12,
        qkey: int = 0,
        access: int = REMOTE,
        traffic_class: int = 0,
    ) -> dict[str, Any]:
        """To RTS. `min_rnr_timer` and `timeout` are codes, `address` is the IP address of the peer."""
        queue, _ = self.queues[qpn]
        route = route_to(address, gid_index, traffic_class)
        attributes = QPAttr()
        attributes.port_num = PORT
        attributes.qp_access_flags = access
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        attributes.dest_qp_num = remote_qpn
        attributes.path_mtu = MTUS[mtu]
        attributes.rq_psn, attributes.sq_psn = receive_psn, send_psn
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = MOST_READS
        attributes.min_rnr_timer = min_rnr_timer
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = timeout, retry_count, rnr_retry
        attributes.qkey = qkey
        queue.to_rts(attributes)
        return {}

    def destroy(self, qpn: int) -> dict[str, Any]:
        for item in self.queues.pop(qpn):
            item.close()
        return {}

    def fill(self, seed: str, offset: int, length: int) -> dict[str, Any]:
        """Write what a seed makes: SHAKE-128 of it."""
        self.region.write(hashlib.shake_128(seed.encode()).digest(length), length, offset)
        return {}

    def clear(self, offset: int, length: int) -> dict[str, Any]:
        self.region.write(bytes(length), length, offset)
        return {}

    def put(self, data: str, offset: int) -> dict[str, Any]:
        content = bytes.fromhex(data)
        self.region.write(content, len(content), offset)
        return {}

    def get(self, offset: int, length: int) -> dict[str, Any]:
        return {"data": self.region.read(length, offset).hex()}

    def digest(self, ranges: list[tuple[int, int]]) -> dict[str, Any]:
        """The SHA-256 of each range of the buffer (offset, length)."""
        return {"digests": [hashlib.sha256(self.region.read(size, at)).hexdigest() for at, size in ranges]}

    def receive(self, qpn: int, buffers: list[tuple[int, int]]) -> dict[str, Any]:
        """Post receives (offset, length); their numbers count from 1000 on."""
        queue, _ = self.queues[qpn]
        for number, (offset, length) in enumerate(buffers):
            queue.post_recv(RecvWR(1000 + number, 1, [SGE(self.region.buf + offset, length, self.region.lkey)]))
        return {}

    def post(self, qpn: int, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """Post requests; their numbers count from 0 on."""
        queue, _ = self.queues[qpn]
        for number, request in enumerate(requests):
            piece = SGE(self.region.buf + request["offset"], request["length"], self.region.lkey)
            operation = request["operation"]
            immediate = socket.htonl(request.get("immediate", 0))
            if operation == "send-invalidate":  # one union in the structure of verbs, in the order of this machine
                immediate = request["invalidate"]
            item = SendWR(number, OPERATIONS[operation], 1, immediate, [piece])
            if operation.startswith(("write", "read")):
                item.set_wr_rdma(request["rkey"], request["address"])
            elif operation in ("compare-swap", "fetch-add"):
                item.set_wr_atomic(request["rkey"], request["address"], request["first"], request.get("second", 0))
            elif "remote_qpn" in request:
                route = route_to(request["remote"], request["gid_index"])
                self.handles.append(AH(self.domain, attr=AHAttr(gr=route, is_global=1, port_num=PORT)))
                item.set_wr_ud(self.handles[-1], request["remote_qpn"], request["qkey"])
            queue.post_send(item)
        return {}

    def wait(self, qpn: int, count: int, timeout_s: float) -> dict[str, Any]:
        """The next `count` completions of a queue pair, fewer where the time is over."""
        _, completions = self.queues[qpn]
        end = time.monotonic() + timeout_s
        found: list[dict[str, Any]] = []
        while len(found) < count and time.monotonic() < end:
            number, items = completions.poll(count - len(found))
            for item in items:
                with_immediate = item.wc_flags & e.IBV_WC_WITH_IMM
                found.append(
                    {
                        "number": item.wr_id,
                        "status": int(item.status),
                        "length": item.byte_len,
                        "immediate": socket.ntohl(item.imm_data) if with_immediate else None,
                    }
                )
            if not number:
                time.sleep(POLL_S)
        return {"completions": found}

    def counters(self) -> dict[str, Any]:
        """Return the device's counters, by the names of its files (rxe_hw_counters.c)."""
        directory = COUNTERS / self.device / f"ports/{PORT}/hw_counters"
        return {
            "counters": {path.name: int(path.read_text()) for path in directory.iterdir() if path.name != "lifespan"}
        }


def main(device: str, size: str) -> None:
    driver = Driver(device, int(size))
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(driver, question.pop("do"))(**question)
        except Exception as error:  # whoever asks is to see all of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
