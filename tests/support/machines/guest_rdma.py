"""Runs perftest between h1 and h2 of the lab `rdma`: TEST [KEY=NUMBER...]. Prints JSON, an error as its text.

`server` and `client` may be named: `server=h3` is one without RDMA. With `traffic_class`, it also says whether a RoCEv2
packet of that type of service came by at the receiver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.model import End
from testbed.run.programs.perftest import PerftestTest
from testbed.run.programs.perftest_pair import PerftestJob, run_pair

WITNESS_TIMEOUT_S = 30.0


def watch(lab: RunningLab, node: str, traffic_class: int) -> subprocess.Popen[bytes]:
    """tcpdump that ends with the first RoCEv2 packet (UDP port 4791) of this type of service. It has begun."""
    argv = ["tcpdump", "-n", "-i", "eth1", "-c", "1", "-Z", "root", f"udp dst port 4791 and ip[1] = {traffic_class}"]
    process = lab.spawn(node, argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while b"listening on" not in (line := process.stderr.readline()):
        assert line, "tcpdump did not begin"
    return process


def main(test: str, *words: str) -> dict[str, object]:
    settings = dict(word.split("=") for word in words)
    client, server = settings.pop("client", "h1"), settings.pop("server", "h2")
    lab = RunningLab.open("rdma", StateDirectory())
    job = PerftestJob(
        test=PerftestTest(test),
        client=End(node=client, interface="eth1"),
        server=End(node=server, interface="eth1"),
        **{key: int(value) for key, value in settings.items()},
    )
    witness = watch(lab, server, job.traffic_class) if job.traffic_class else None
    try:
        run = run_pair(lab, job)
    except TestbedError as error:
        return {"error": str(error)}
    finally:
        if witness is not None:
            try:
                seen = witness.wait(WITNESS_TIMEOUT_S) == 0
            except subprocess.TimeoutExpired:
                seen = False
                witness.kill()
                witness.wait()
    return {
        "bandwidths": [asdict(item) for item in run.report.bandwidths],
        "latencies": [asdict(item) for item in run.report.latencies],
        "settings": dict(run.report.settings),
        "retransmissions": run.retransmissions,
        "client": dict(run.client_counters),
        "server": dict(run.server_counters),
        "seen": witness is not None and seen,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
