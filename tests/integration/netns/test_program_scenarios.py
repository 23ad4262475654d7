"""Programs of one's own as the traffic of scenarios, on live labs: steps, faults at steps, failures, and trust."""

import importlib.util
import json
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.frr]

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install 'testbed[programs]'"
)
HEADERS = Path("/usr/include/rdma/fi_tagged.h")
PASS, FAIL, INVALID, NOT_STARTED = 0, 1, 2, 3
BYTES = 200_000
RING = '''\
"""Each rank sends so many bytes to the next one, step by step, and waits for as many of the one before."""
import os, socket, sys, time
rank, size, peers = int(os.environ["LAB_RANK"]), int(os.environ["LAB_SIZE"]), os.environ["LAB_PEERS"].split(",")
steps, many = int(sys.argv[1]), int(sys.argv[2])
server = socket.create_server((os.environ["LAB_ADDRESS"], 7000))
for _ in range(300):
    try:
        after = socket.create_connection((peers[(rank + 1) % size], 7000), 5)
        break
    except OSError:
        time.sleep(0.1)
before = server.accept()[0]
for step in range(steps):
    begin = time.monotonic()
    after.sendall(bytes(many))
    left = many
    while left:
        left -= len(before.recv(min(left, 65536)))
    print(f"step {step} took {time.monotonic() - begin:.4f} s", flush=True)
    time.sleep(0.05)
'''
LOOPBACK = '''\
"""Says that it is fast, and sends to itself alone."""
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].recv(200_000, socket.MSG_WAITALL)).start()
socket.create_connection(server.getsockname()).sendall(bytes(200_000))
for step in range(4):
    time.sleep(0.2)
    print(f"step {step} took 0.0010 s", flush=True)
'''
MPI = '''\
"""All-reduces of so many bytes, over MPI."""
import sys, time
import numpy as np
from mpi4py import MPI
mine = np.full(int(sys.argv[2]) // 8, MPI.COMM_WORLD.rank + 1.0)
for step in range(int(sys.argv[1])):
    begin = time.monotonic()
    assert (MPI.COMM_WORLD.allreduce(mine) == 6.0).all()
    print(f"step {step} took {time.monotonic() - begin:.4f} s", flush=True)
'''
COUNTED = """
rows = [line.split() for line in open("/proc/self/net/snmp") if line.startswith("Udp:")]
print("this host has received", dict(zip(*rows))["InDatagrams"], "datagrams", flush=True)
"""
"""Ends a program by what UDP has brought to its host: what endpoints in user space send are datagrams."""
BREAKS = '''\
"""Rank 1 breaks after its second step."""
import os, sys, time
for step in range(100):
    print(f"step {step} took 0.1 s", flush=True)
    time.sleep(0.1)
    if os.environ["LAB_RANK"] == "1" and step == 2:
        print("the reason is this", file=sys.stderr, flush=True)
        sys.exit(5)
'''


def run(
    sandbox: Any,
    program: str,
    *,
    command: str = '"{python}", program.py',
    arguments: str = "",
    faults: str = "",
    more: str = "",
    transport: str = "tcp",
    expect: str = "",
) -> tuple[int, dict[str, Any], Path]:
    """The exit code, the record and the results of a scenario with three hosts on one switch, at 20 Mbit/s."""
    (sandbox.work / "program.py").write_text(program)
    path: Path = sandbox.work / "own.yml"
    path.write_text(
        f"""name: own
topology:
  inline: {{name: {sandbox.name()}, scale: {{time: 10000}}, fabric: {{design: single-switch, hosts: 3, gpus: 1}}}}
transport: {{kind: {transport}}}
workload:
  kind: program
  command: [{command}{arguments}]
  step: "step (?P<step>\\\\d+) took (?P<seconds>[\\\\d.]+) s"
  bytes: {BYTES}
  collective: send-recv
  {more}
faults: [{faults}]
expect: [{expect}]
probes: off
"""
    )
    done = sandbox.cli("run", str(path), "-f", "json", timeout_s=150.0)
    found = sorted(sandbox.work.glob("results/*/record.json"))
    assert found, done.stderr
    return done.returncode, json.loads(found[-1].read_text()), found[-1].parent


def the_run(record: dict[str, Any]) -> dict[str, Any]:
    (found,) = record["points"][0]["runs"]
    return dict(found)


def test_a_program_is_measured_by_its_steps(sandbox: Any) -> None:
    code, record, results = run(
        sandbox, RING, arguments=f', "8", "{BYTES}"', expect="{metric: program_ratio, max: 2, source: a test}"
    )
    found = the_run(record)
    program, metrics = found["program"], found["metrics"]
    assert program["exit_code"] == 0 and [rank["host"] for rank in program["ranks"]] == [
        "p1-s1-h1",
        "p1-s1-h2",
        "p1-s1-h3",
    ]
    assert program["steps"]["number"] == list(range(8)) and program["steps"]["warm_up"] == [True] + [False] * 7
    assert program["sent_bytes"] > 3 * 8 * BYTES and program["stated_bytes"] == 3 * BYTES
    assert 0.08 <= program["ideal_step_s"] < 0.085, "200 kB at 20 Mbit/s, and headers"
    assert 1.0 <= metrics["program_ratio"] < 2.0, metrics
    assert metrics["program_step_p99"] >= metrics["program_step_p50"] and metrics["program_exit"] == 0
    (check,) = (check for check in found["checks"] if check["name"] == "fabric-used")
    assert check["ok"], check
    told = " ".join(record["environment"]["approximations"])
    assert "carry over to the real fabric" in told and "Computing is not scaled" in told
    page = (results / "report.html").read_text()
    assert "The program" in page and "Steps of the program" in page and "step 7 took" in page
    broken = [check for check in found["checks"] if not check["ok"]]
    assert code == (INVALID if broken else PASS), (record["verdict"], broken)


def datagrams(program: dict[str, Any]) -> list[int]:
    """What each rank has said that its host has received."""
    return [int(rank["last_lines"][-1].split()[-2]) for rank in program["ranks"]]


@pytest.mark.parametrize("transport", ["tcp", pytest.param("uet", marks=pytest.mark.thorough), "roce"])
def test_its_sockets_go_over_the_transport_of_the_scenario(sandbox: Any, transport: str) -> None:
    steps = 5
    code, record, _ = run(sandbox, RING + COUNTED, arguments=f', "{steps}", "{BYTES}"', transport=transport)
    found = the_run(record)
    program, checks = found["program"], {check["name"]: check for check in found["checks"]}
    assert program["exit_code"] == 0, program
    assert len(program["steps"]["number"]) == steps and checks["fabric-used"]["ok"], checks["fabric-used"]
    assert 1.0 <= found["metrics"]["program_ratio"] < 4.0, found["metrics"]
    least = steps * BYTES / 4096
    assert all(count < least / 4 if transport == "tcp" else count >= least for count in datagrams(program))
    assert program["sent_again"] is not None
    broken = [check for check in found["checks"] if not check["ok"]]
    assert code == (INVALID if broken else PASS), (record["verdict"], broken)


@needs_mpi
@pytest.mark.skipif(not HEADERS.exists(), reason="libfabric's headers: apt-get install libfabric-dev")
def test_mpi_goes_over_libfabric_in_a_scenario(sandbox: Any) -> None:
    steps = 4
    code, record, _ = run(
        sandbox,
        MPI + COUNTED,
        arguments=f', "{steps}", "{BYTES}"',
        more="pmi: true\n  polls: true\n  libfabric: true",
        transport="uet",
    )
    found = the_run(record)
    program, checks = found["program"], {check["name"]: check for check in found["checks"]}
    assert program["exit_code"] == 0, program
    assert len(program["steps"]["number"]) == steps and checks["fabric-used"]["ok"], checks["fabric-used"]
    assert all(count >= BYTES / 4096 for count in datagrams(program)), program
    broken = [check for check in found["checks"] if not check["ok"]]
    assert code == (INVALID if broken else PASS), (record["verdict"], broken)


def test_a_program_that_sends_to_itself_alone_is_invalid(sandbox: Any) -> None:
    """Without the check the run would pass, and be a thousand times as fast as the fabric."""
    code, record, _ = run(sandbox, LOOPBACK, expect="{metric: program_step_p50, max: 2ms, source: what it says}")
    assert the_run(record)["metrics"]["program_step_p50"] == 0.001
    assert [item["outcome"] for item in record["expectations"]] == ["pass", "pass"], "nothing else would have told"
    (check,) = (check for check in the_run(record)["checks"] if check["name"] == "fabric-used")
    assert not check["ok"] and "does not use the fabric" in check["message"]
    assert code == INVALID and record["verdict"]["outcome"] == "invalid"


def test_faults_happen_at_steps(sandbox: Any) -> None:
    fault = '{at: {step: 3}, until: {step: 5}, link: "p1-s1-h1:rail1", set: {rate: 25%}}'
    _, record, _ = run(sandbox, RING, arguments=f', "9", "{BYTES}"', faults=fault)
    found = the_run(record)
    steps = found["program"]["steps"]
    when = {event["kind"]: event["at_s"] for event in found["events"] if "link-set" in event["kind"]}
    assert set(when) == {"link-set", "undone-link-set"}, found["checks"]
    at = dict(zip(steps["number"], steps["at_s"], strict=True))
    assert at[3] - 0.5 <= when["link-set"] < at[4] and at[5] - 0.5 <= when["undone-link-set"] < at[7]
    took = dict(zip(steps["number"], steps["seconds"], strict=True))
    assert took[4] > 2.0 * took[2], "a quarter of the rate"
    (check,) = (check for check in found["checks"] if check["name"] == "faults")
    assert check["ok"] or "late" in check["message"], check


def test_a_program_that_fails_is_a_fail_with_its_last_words(sandbox: Any) -> None:
    code, record, results = run(sandbox, BREAKS, expect="{metric: program_bytes, min: 1e12, source: it is not reached}")
    program = the_run(record)["program"]
    assert program["exit_code"] == 5 and "rank 1 on p1-s1-h2" in program["failure"]
    assert program["ranks"][1]["last_lines"][-1] == "the reason is this"
    assert not any(check["name"] == "fabric-used" for check in the_run(record)["checks"])
    broken = [check for check in the_run(record)["checks"] if not check["ok"]]
    assert code == (INVALID if broken else FAIL), (record["verdict"], broken)
    cases = {case.get("name", ""): case for case in ElementTree.parse(results / "junit.xml").iter("testcase")}
    (exit_case,) = (case for name, case in cases.items() if name.startswith("program_exit"))
    assert exit_case.find("failure") is not None
    assert "the reason is this" in (exit_case.findtext("system-out") or "")
    if not broken:
        assert any("the reason is this" in reason for reason in record["verdict"]["reasons"])


def test_a_host_that_dies_ends_the_program(sandbox: Any) -> None:
    fault = "{at: {step: 2}, agent: p1-s1-h3, kill: true}"
    code, record, _ = run(sandbox, RING, arguments=f', "200", "{BYTES}"', faults=fault)
    program = the_run(record)["program"]
    assert program["exit_code"] == 128 + signal.SIGKILL and "rank 2 on p1-s1-h3" in program["failure"]
    assert [event["kind"] for event in the_run(record)["events"]] == ["agent-kill"]
    assert code in (FAIL, INVALID)


@pytest.mark.thorough
def test_a_program_without_end_is_invalid_and_leaves_nothing(sandbox: Any) -> None:
    code, record, _ = run(sandbox, RING, arguments=f', "100000", "{BYTES}"', more="time_limit: 4s")
    assert code == INVALID and "time limit of 4 s: it had told of" in record["incomplete"]
    assert the_run(record)["program"]["exit_code"] == 124


def test_a_program_that_is_not_there_is_a_fail(sandbox: Any) -> None:
    code, record, _ = run(sandbox, RING, command="no-such-program-at-all")
    found = the_run(record)
    assert found["program"]["exit_code"] == 127 and "command not found" in found["program"]["failure"]
    broken = [check for check in found["checks"] if not check["ok"]]
    assert code == (INVALID if broken else FAIL), (record["verdict"], broken)


def test_a_package_that_is_missing_is_told_before_anything_is_deployed(sandbox: Any) -> None:
    path: Path = sandbox.work / "needy.yml"
    path.write_text(
        f"""name: needy
topology: {{inline: {{name: {sandbox.name()}, fabric: {{design: single-switch, hosts: 2, gpus: 1}}}}}}
workload: {{kind: program, command: ["{{python}}", x.py], needs: [no-such-package-at-all]}}
"""
    )
    done = sandbox.cli("run", str(path))
    assert done.returncode == NOT_STARTED
    assert "needs the Python package no-such-package-at-all" in done.stderr and "pip install" in done.stderr
    assert not sandbox.namespaces()
