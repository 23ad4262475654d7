"""Scale-up domains of a lab that is changed while it is up: GPUs copy before and after, and other switches run on."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.base.linux.namespaces import in_namespace, published
from testbed.base.names import domain_node_name, namespace_name
from testbed.base.units import Rate
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import changes_of
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.model import SCALE_UP_PRESETS, Credits, DomainSpan, Lab, ScaleUpBy
from testbed.lab.core.plan.changes import Allow
from testbed.lab.features.scale_up.apply import domain_states, gpu_settings
from testbed.lab.features.scale_up.planes import PlaneControl
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Endpoints

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 20_000.0
SIZE = 1 << 18
H100 = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS)
FIRST, SECOND, THIRD = "p1-s1-h1", "p1-s1-h2", "p1-s1-h3"


def model(sandbox: Any, hosts: int, scale_up: Any = H100, gpus: int = 2) -> Lab:
    made: Lab = sandbox.model(segments=1, hosts=hosts, gpus=gpus, spines=1)
    return replace(made, scale_up=scale_up)


def apply(sandbox: Any, wanted: Lab, *allow: Allow) -> RunningLab:
    """Change the lab, which afterwards has nothing left to change and nothing wrong; return it as it is then."""
    apply_lab(wanted, sandbox.state, ApplyOptions(k=K, allow=frozenset(allow)))
    lab = RunningLab.open(wanted.name, sandbox.state)
    assert not changes_of(lab, wanted, K).rows
    assert [result for result in check_lab(lab).results if result.failures] == []
    return lab


def pids(lab: RunningLab) -> dict[str, int]:
    return {state.name: state.counted["pid"] for state in domain_states(lab)}


def copy(lab: RunningLab, *gpus: tuple[str, int]) -> None:
    """The first GPU writes to the second, which has then what was written."""
    data = random.Random(SIZE).randbytes(SIZE)
    with Endpoints(scale_up_domain.build()) as endpoints:
        source, target = opened(lab, endpoints, gpus)
        memory = bytearray(SIZE)
        window = target.export(memory)
        window.authorise(source.gpu)
        endpoints.wait(source, source.write(window.reference(), data), 60.0)
        assert memory == data


def opened(lab: RunningLab, endpoints: Endpoints, gpus: Sequence[tuple[str, int]]) -> list[Any]:
    settings = [(host, gpu_settings(lab.plan, host, number, lab.processes_directory)) for host, number in gpus]
    return [in_namespace(lab.namespace(host), partial(endpoints.add, one)) for host, one in settings]


def test_hosts_come_and_go_with_their_domains(sandbox: Any) -> None:
    lab = sandbox.deploy(model(sandbox, 2), k=K).lab
    before = pids(lab)
    lab = apply(sandbox, model(sandbox, 3))
    assert {name: pids(lab)[name] for name in before} == before and THIRD in pids(lab)
    copy(lab, (THIRD, 1), (THIRD, 2))
    environment = lab.environment(THIRD)
    assert Path(environment["TESTBED_GPUS"]).exists(), "its programs find its GPUs"
    lab = apply(sandbox, model(sandbox, 1))
    assert pids(lab) == {FIRST: before[FIRST]}
    assert not published([namespace_name(lab.name, domain_node_name(name)) for name in (SECOND, THIRD)])
    assert not [path for path in (lab.processes_directory / ".scale-up").iterdir() if path.name in (SECOND, THIRD)]
    assert not Path(environment["TESTBED_GPUS"]).exists()
    copy(lab, (FIRST, 1), (FIRST, 2))


def test_credits_and_rates_come_with_a_new_switch_that_errors_of_links_follow_to(sandbox: Any) -> None:
    lab = sandbox.deploy(model(sandbox, 1), k=K).lab
    before = pids(lab)
    link = f"{FIRST}.gpu2:plane3"
    with LinkControl(lab) as control:
        control.set(link, LinkChange(loss=0.01))
    slower = replace(H100, rate=Rate.parse("1.8T"), credits=Credits(limit=120))
    lab = apply(sandbox, model(sandbox, 1, slower))
    assert pids(lab) != before
    (shown,) = PlaneControl(lab).show(link)
    assert shown.errors is not None and shown.errors.loss == 0.01
    assert shown.rate_bps * 2 == H100.plane_rate(3).scaled(K).bps
    copy(lab, (FIRST, 1), (FIRST, 2))


def test_a_switch_whose_gpus_are_in_use_is_started_anew_where_that_is_allowed(sandbox: Any) -> None:
    lab = sandbox.deploy(model(sandbox, 2), k=K).lab
    before, wanted = pids(lab), model(sandbox, 2, replace(H100, rate=Rate.parse("1.8T")))
    with Endpoints(scale_up_domain.build()) as endpoints:
        opened(lab, endpoints, [(FIRST, 1), (FIRST, 2)])
        with pytest.raises(ChangeRefused, match=rf"switch of {FIRST}") as caught:
            apply_lab(wanted, sandbox.state, ApplyOptions(k=K))
        assert SECOND not in caught.value.message and "--allow restart" in (caught.value.hint or "")
        assert pids(lab) == before, "nothing was touched"
        lab = apply(sandbox, wanted, Allow.RESTART)
    assert not set(pids(lab).values()) & set(before.values())
    copy(lab, (FIRST, 1), (FIRST, 2))


def test_a_rack_grows_and_shrinks(sandbox: Any) -> None:
    """GPUs of all hosts are in one domain, where their numbers are others once a host before them has more."""
    rack = replace(H100, domain=DomainSpan.SEGMENT)
    lab = sandbox.deploy(model(sandbox, 2, rack), k=K).lab
    copy(lab, (FIRST, 1), (SECOND, 2))
    lab = apply(sandbox, model(sandbox, 3, rack))
    copy(lab, (FIRST, 2), (THIRD, 1))
    lab = apply(sandbox, model(sandbox, 3, rack, gpus=3))
    copy(lab, (FIRST, 3), (THIRD, 3))
    lab = apply(sandbox, model(sandbox, 2, replace(rack, shares=(9, 9))))
    copy(lab, (SECOND, 2), (FIRST, 1))


def test_from_time_to_packets_and_back(sandbox: Any) -> None:
    by_time = replace(H100, by=ScaleUpBy.TIME)
    sandbox.deploy(model(sandbox, 1, by_time), k=K)
    lab = apply(sandbox, model(sandbox, 1))
    copy(lab, (FIRST, 1), (FIRST, 2))
    lab = apply(sandbox, model(sandbox, 1, by_time))
    assert not domain_states(lab)
    assert "gpu1p1" not in lab.run(FIRST, ["ip", "-br", "link"]).stdout
    assert not published([namespace_name(lab.name, domain_node_name(FIRST))])
