"""A data centre in small with everything on it: all networks of topologies/datacentre.yml and all services."""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from figures import Figure, judge
from test_bring_up import ROOT, TESTBED, available_bytes, destroyed, timed

from testbed.base.linux.processes import processes_in
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.features.management.services.launcher import missing_programs
from testbed.lab.features.management.services_apply import read_services

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(900)]

NAME, LARGE = "benchdcall", "bench64"
SERVICES = ["ssh", "dns", "dhcp", "time", "syslog", "telemetry", "lldp", "redfish"]
IDLE_S = 10.0
LOG_INS = SCRAPES = 5
TOLD = 3
"""Programs that the figure of an idle lab names."""


def datacentre() -> dict[str, Any]:
    """The shipped topology, with every service on its management network."""
    lab: dict[str, Any] = yaml.safe_load((ROOT / "topologies/datacentre.yml").read_text())
    lab["networks"]["management"]["services"] = SERVICES
    return lab | {"name": NAME}


def large() -> dict[str, Any]:
    """48 hosts, 14 switches, and the switch and the server of management: 64 nodes, whose data ports have queues."""
    return {
        "name": LARGE,
        "scale": {"time": 100000},
        "qos": {"preset": "dcqcn"},
        "fabric": {"design": "rail-optimized", "segments": 2, "hosts": 24, "gpus": 4, "spines": 6},
        "networks": {"management": {"design": "out-of-band"}},
    }


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process; 0 once it has ended (Documentation/scheduler/sched-stats.rst)."""
    found = 0.0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def memory_bytes(pids: Iterable[int]) -> int:
    """What processes have in memory, pages that several share divided among them (proc(5), smaps_rollup)."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            found += 1024 * int(re.findall(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[0])
    return found


def programs(lab: RunningLab) -> Mapping[int, str]:
    """The name of every process of a lab, by its number."""
    names = {process.pid: process.command for process in processes_in(set(lab.identities.values()))}
    for status in (*lab.status(), *read_services(lab)):
        names |= {pid: program for program, pid in status.pids.items()}
    return names


def idle_shares(lab: RunningLab) -> Counter[str]:
    """The share of a core that each program of a lab takes while nobody uses it."""
    names = programs(lab)
    before, began = {pid: cpu_s(pid) for pid in names}, time.monotonic()
    time.sleep(IDLE_S)
    after, elapsed_s = {pid: cpu_s(pid) for pid in names}, time.monotonic() - began
    shares: Counter[str] = Counter()
    for pid, name in names.items():
        shares[name] += max(0.0, after[pid] - before[pid]) / elapsed_s
    return shares


def remains(name: str, identities: set[int]) -> list[str]:
    """Whatever of a lab is still there: namespaces, processes, mounts and files."""
    found = [path.name for path in Path("/run/netns").glob(f"{name}-*")]
    found += [process.command for process in processes_in(identities)]
    found += re.findall(rf"\S*/{name}\b\S*", Path("/proc/self/mounts").read_text())
    state = StateDirectory()
    return found + [str(path) for path in (state.run_directory(name), state.lab_directory(name)) if path.exists()]


def test_all_networks_with_all_services(tmp_path: Path) -> None:
    if missing := [name for name in SERVICES if missing_programs(name)]:
        pytest.skip(f"packages of {', '.join(missing)} are missing: `testbed doctor` says which")
    (tmp_path / "lab.yml").write_text(yaml.safe_dump(datacentre()))
    available = available_bytes()
    with destroyed(NAME, tmp_path):
        deploy = timed([*TESTBED, "deploy", "-q", "-t", "lab.yml"], tmp_path)
        used = (available - available_bytes()) / 1e9
        lab = RunningLab.open(NAME, StateDirectory())
        identities = set(lab.identities.values())
        # A session without a shell, whose start-up files are the user's.
        log_in = [*("ssh", "-F", str(lab.directory / "ssh_config")), "-s", "p1-s1-h1", "sftp"]
        # Idle first: right after a deploy the exporter makes the lab's plan, and Prometheus its first files.
        idle, processes = idle_shares(lab), memory_bytes(programs(lab)) / 1e9
        log_ins = [timed(log_in, tmp_path) for _ in range(LOG_INS)]
        destroy = timed([*TESTBED, "destroy", "-q", "-n", NAME], tmp_path)
    told = ", ".join(f"{name} {share:.1%}" for name, share in idle.most_common(TOLD))
    judge(
        Figure("datacentre.yml with all services: deployed", deploy, at_most=15, unit="s"),
        Figure("datacentre.yml with all services: memory", used, at_most=1, unit="GB"),
        Figure("of that, processes", processes, at_most=1, unit="GB"),
        Figure(f"idle, % of a core ({told})", 100 * idle.total(), at_most=10, unit="%"),
        Figure("log-in by SSH, median of 5", statistics.median(log_ins), at_most=0.3, unit="s"),
        Figure("datacentre.yml with all services: destroy", destroy, at_most=3, unit="s"),
    )
    assert remains(NAME, identities) == []


@contextlib.contextmanager
def exporter(name: str, cwd: Path) -> Iterator[str]:
    """`serve metrics` of one lab at a free port; gives its URL."""
    argv = [*TESTBED, "serve", "metrics", "-n", name, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(argv, cwd=cwd, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://\S+", process.stderr.readline())
            yield found.group()
        finally:
            process.terminate()


def test_scrape_of_64_nodes(tmp_path: Path) -> None:
    """The first scrape makes the lab's plan, too, so it is told by itself; Prometheus waits for either."""
    (tmp_path / "lab.yml").write_text(yaml.safe_dump(large()))
    with destroyed(LARGE, tmp_path):
        timed([*TESTBED, "deploy", "-q", "-t", "lab.yml"], tmp_path)
        seconds = []
        with exporter(LARGE, tmp_path) as url:
            for _ in range(1 + SCRAPES):
                began = time.monotonic()
                with urllib.request.urlopen(url, timeout=60) as answer:
                    text = answer.read().decode()
                seconds.append(time.monotonic() - began)
    assert 'network="management"' in text and 'network="backend"' in text
    judge(
        Figure("64 nodes: first scrape", seconds[0], at_most=2, unit="s"),
        Figure("64 nodes: scrape, median of 5", statistics.median(seconds[1:]), at_most=2, unit="s"),
    )
