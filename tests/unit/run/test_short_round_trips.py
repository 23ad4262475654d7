"""Windows of a few packets, where a lab's links have no delays: they are sprayed badly, which is told before a run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.sweeps import read_sweep
from testbed.run.transports.registry import transport_on

POD = """
name: pod
scale: {{time: {k}}}
fabric:
  design: rail-optimized
  segments: 2
  hosts: 2
  gpus: 1
  nic: {{rate: 400G}}
  spines: {spines}
  uplink: {{rate: 400G, count: 1{delay}}}
"""


def told(*, delay: str = "", spines: int = 2, qos: str = "", k: float = 1000, **transport: Any) -> list[str]:
    """What is told of UET on a pod."""
    text = POD.format(delay=delay and f", delay: {delay}", spines=spines, k=k) + qos
    model = load_topology_text(text, file="pod.yml")
    where: Any = SimpleNamespace(name="pod", model=model, plan=plan_lab(model, k=float(k)))
    return transport_on(where, Transport(kind=TransportKind.UET, **transport)).warnings()


@pytest.mark.parametrize("k", [1, 1000])
@pytest.mark.parametrize("cc", [None, "nscc", "both"])
def test_a_window_of_a_few_packets_is_told(cc: str | None, k: float) -> None:
    """Four frames of 4,514 bytes and four answers of 64 take 367 ns at 400 Gbit/s: 18 kB, so 6 packets."""
    (said,) = told(cc=cc, k=k)
    assert said.startswith("NSCC's window is 6 packets at most, 1.5 times what a base round trip of 367 ns holds")
    assert "delays of links or qos.base_rtt" in said


def test_windows_of_a_fabric_are_not() -> None:
    assert told(delay="100ns") == []
    assert told(qos="qos: {preset: uec, base_rtt: 12us}\n") == []


def test_nor_where_nothing_is_sprayed_or_no_window_is_of_a_round_trip() -> None:
    assert told(spines=1) == []
    assert told(paths="single") == []
    assert told(options={"mode": "ROD"}) == []
    assert told(cc="rccc") == [] == told(cc="none")


def test_a_base_rtt_that_a_transport_cannot_have_says_what_it_can_be(tmp_path: Path) -> None:
    topology = (
        "topology:\n  inline: {name: lab, scale: {time: 5000}, fabric: {design: rail-optimized, hosts: 2, gpus: 1,"
        " spines: 1}, qos: {preset: uec, base_rtt: BASE}}\n"
    )
    file = tmp_path / "sc.yml"

    def check(base_rtt: str) -> None:
        text = f"name: sc\n{topology}transport: {{kind: uet}}\nworkload: {{kind: incast, bytes: 10kB}}\n"
        file.write_text(text.replace("BASE", base_rtt))
        sweep = read_sweep(file)
        lab = sweep.lab_of(sweep.points[0])
        planned: Any = SimpleNamespace(name="lab", model=lab, plan=plan_lab(lab, k=5000.0))
        sweep.prepare(sweep.points, lambda point: transport_on(planned, point.scenario.transport))

    with pytest.raises(SpecError, match=r"sc\.yml:3:3: unfit: topology: the base RTT is 500 s .* takes 1 us to 100 s"):
        check("100ms")
    with pytest.raises(SpecError, match="can be 20ms at most"):
        check("100ms")
    check("20ms")
