"""Whatever QoS a lab has: its plan's numbers fit together, or the plan is refused with a reason."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from testbed.base.errors import PlanError
from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.fabric import FabricParams, UplinkParams, generate_fabric
from testbed.lab.core.model import (
    BalancingMode,
    Buffer,
    Delay,
    Depth,
    DepthUnit,
    EcnCurve,
    HashEngine,
    Lab,
    LoadBalancing,
    NonEct,
    PfcThresholds,
    QosPolicy,
    QosProfile,
    TrafficClass,
    Watchdog,
)
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.plan.qos.qos_plan import QosPlan

CHECKED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DEPTHS = st.one_of(
    st.integers(1, 5_000_000).map(lambda size: Depth(float(size))),
    st.floats(0.01, 8, allow_nan=False).map(lambda value: Depth(round(value, 3), DepthUnit.BDP)),
)
MAYBE_DEPTH = st.none() | DEPTHS


@st.composite
def curves(draw: st.DrawFn) -> EcnCurve:
    low, high = sorted(draw(st.tuples(st.integers(0, 4000), st.integers(0, 4000))))
    unit, factor = draw(st.sampled_from([(DepthUnit.BYTES, 1000.0), (DepthUnit.BDP, 0.001)]))
    pmax = draw(st.floats(0.01, 1))
    non_ect = draw(st.sampled_from(NonEct))
    return EcnCurve(kmin=Depth(low * factor, unit), kmax=Depth(high * factor, unit), pmax=pmax, non_ect=non_ect)


@st.composite
def traffic_classes(draw: st.DrawFn) -> tuple[TrafficClass, ...]:
    count = draw(st.integers(1, 8))
    priorities = sorted(draw(st.permutations(range(8)))[:count])
    code_points = draw(st.permutations(range(64)))
    default = draw(st.integers(0, count - 1))
    strict = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    shared = [index for index in range(count) if not strict[index]]
    cuts = sorted(draw(st.permutations(range(1, 100)))[: max(0, len(shared) - 1)])
    weights = dict(zip(shared, (high - low for low, high in pairwise([0, *cuts, 100])), strict=False))
    found = []
    for index, priority in enumerate(priorities):
        lossless = draw(st.booleans())
        pfc = PfcThresholds(xoff=draw(MAYBE_DEPTH), headroom=draw(MAYBE_DEPTH)) if lossless else None
        found.append(
            TrafficClass(
                name=f"c{priority}",
                priority=priority,
                dscp=tuple(code_points[index * 3 : index * 3 + draw(st.integers(0, 3))]),
                default=index == default,
                strict=strict[index],
                weight=weights.get(index, 0),
                lossless=lossless,
                limit=None if lossless else draw(MAYBE_DEPTH),
                ecn=draw(st.none() | curves()),
                pfc=pfc,
            )
        )
    return tuple(found)


@st.composite
def profiles(draw: st.DrawFn) -> QosProfile:
    mode = draw(st.sampled_from(BalancingMode))
    return QosProfile(
        preset="custom",
        classes=draw(traffic_classes()),
        buffer=Buffer(shared_bytes=draw(st.integers(100_000, 500_000_000)), alpha=draw(st.floats(1 / 256, 128))),
        load_balancing=LoadBalancing(
            mode=mode,
            hash=draw(st.sampled_from(HashEngine)) if mode is BalancingMode.FLOW else HashEngine.EBPF,
            polarised=draw(st.booleans()),
        ),
        trimming=draw(st.booleans()),
        watchdog=draw(st.none() | st.just(Watchdog())),
        base_rtt=draw(st.none() | st.integers(1, 100_000).map(Duration)),
    )


@st.composite
def labs(draw: st.DrawFn) -> Lab:
    fabric = generate_fabric(
        FabricParams(
            design="rail-optimized",
            segments=draw(st.integers(1, 2)),
            hosts=draw(st.integers(1, 3)),
            gpus=draw(st.integers(1, 2)),
            spines=draw(st.integers(1, 3)),
            uplink=UplinkParams(
                rate=Rate(draw(st.sampled_from([100, 400, 800])) * 10**9),
                delay=draw(st.none() | st.integers(1, 10_000).map(lambda ns: Delay(value=Duration(ns)))),
            ),
            mtu=draw(st.sampled_from([1500, 4500, 9000])),
        ),
        name="pod",
    )
    found = list(dict.fromkeys(draw(st.lists(profiles(), min_size=1, max_size=3))))
    indexes = st.integers(0, len(found) - 1)
    names = [node.name for node in fabric.nodes]
    of_node = draw(st.dictionaries(st.sampled_from(names), indexes, max_size=4))
    return replace(fabric, qos=QosPolicy(profiles=tuple(found), of_node=of_node))


SCALES = st.sampled_from([50.0, 1000.0, 12_345.6])


def planned(lab: Lab, k: float) -> tuple[QosPlan, list[InstallPort]]:
    try:
        plan = plan_lab(lab, k=k)
    except PlanError as error:
        assert error.code == "buffer-too-small"
        assert error.hint
        assume(False)
        raise
    assert plan.qos is not None
    return plan.qos, [operation for operation in plan.operations if isinstance(operation, InstallPort)]


@CHECKED
@given(labs(), SCALES)
def test_every_switch_holds_what_it_promises(lab: Lab, k: float) -> None:
    """Two frames for each queue, XOFF and headroom for each lossless ingress queue: all at once fit into the buffer."""
    qos, ports = planned(lab, k)
    promised: Counter[int] = Counter()
    headroom: Counter[int] = Counter()
    for port in ports:
        for item in qos.profiles[port.profile].classes:
            promised[port.buffer] += item.reserved_bytes + item.xoff_bytes + item.headroom_bytes
            headroom[port.buffer] += item.headroom_bytes
    for index, buffer in enumerate(qos.buffers[1:], start=1):
        assert promised[index] <= buffer.shared_bytes
        assert headroom[index] == buffer.headroom_bytes


@CHECKED
@given(labs(), SCALES)
def test_the_numbers_of_a_class_are_in_order(lab: Lab, k: float) -> None:
    qos, _ = planned(lab, k)
    for profile in qos.profiles:
        priorities = [item.priority for item in profile.classes]
        assert len(set(priorities)) == len(priorities)
        assert set(profile.class_of_dscp) <= set(priorities)
        assert len(profile.class_of_dscp) == 64
        assert {profile.control_class, profile.trimmed_class} <= set(priorities)
        for item in profile.classes:
            assert item.quantum_bytes >= profile.mtu_bytes + 14
            assert item.limit_bytes >= 0
            if item.kmin_bytes is not None and item.kmax_bytes is not None:
                assert profile.switch
                assert 0 <= item.kmin_bytes <= item.kmax_bytes
            if item.lossless and profile.switch:
                assert 0 <= item.xon_bytes < item.xoff_bytes
                assert item.alpha == 0
            else:
                assert item.xoff_bytes == item.xon_bytes == item.headroom_bytes == 0


@CHECKED
@given(labs())
def test_depths_do_not_depend_on_the_scale(lab: Lab) -> None:
    """Bytes are not scaled: only what the reaction time (lab time) enters into may differ."""

    def scale_free(k: float) -> list[tuple[int, int, list[tuple[int | None, int | None, int, int]]]]:
        qos, ports = planned(lab, k)
        return [
            (
                qos.profiles[port.profile].profile,
                qos.profiles[port.profile].bdp_bytes,
                [
                    (item.kmin_bytes, item.kmax_bytes, item.limit_bytes, item.quantum_bytes)
                    for item in qos.profiles[port.profile].classes
                ],
            )
            for port in ports
        ]

    assert scale_free(1000) == scale_free(100_000)


@CHECKED
@given(labs(), SCALES)
def test_what_is_written_is_what_is_planned(lab: Lab, k: float) -> None:
    assert lab.qos is not None
    qos, ports = planned(lab, k)
    for port in ports:
        profile = qos.profiles[port.profile]
        written = lab.qos.of(port.node, port.name)
        assert lab.qos.profiles[profile.profile] == written
        assert [item.name for item in profile.classes] == [item.name for item in written.classes]
        for item, said in zip(profile.classes, written.classes, strict=True):
            assert (item.strict, item.weight, item.lossless) == (said.strict, said.weight, said.lossless)
            if profile.switch and said.pfc is not None and said.pfc.xoff is not None:
                assert item.xoff_bytes == max(1, said.pfc.xoff.bytes_at(profile.bdp_bytes))  # at least a byte
            for code_point in said.dscp:
                assert profile.class_of_dscp[code_point] == item.priority


@CHECKED
@given(labs(), SCALES)
def test_a_smaller_reaction_never_needs_more(lab: Lab, k: float) -> None:
    planned(lab, k)
    quick = plan_lab(lab, k=k, reaction_ns=100_000).qos
    slow = plan_lab(lab, k=k).qos
    assert quick is not None
    assert slow is not None
    for less, more in zip(quick.buffers, slow.buffers, strict=True):
        assert less.headroom_bytes <= more.headroom_bytes


@CHECKED
@given(labs())
def test_a_lab_with_qos_survives_the_state_directory(lab: Lab) -> None:
    assert decode_lab(json.loads(json.dumps(encode_lab(lab)))) == lab
