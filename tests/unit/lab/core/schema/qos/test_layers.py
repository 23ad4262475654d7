"""The `qos:` section becomes a `QosPolicy`: presets, overrides at every level, priorities, weights."""

import pytest

from testbed.base.errors import SpecError
from testbed.base.units import Duration
from testbed.lab.assembly.write import render_topology
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import (
    BalancingMode,
    Buffer,
    Depth,
    DepthUnit,
    EcnCurve,
    HashEngine,
    Lab,
    LoadBalancing,
    MarkAt,
    NonEct,
    PfcThresholds,
    QosPolicy,
    QosProfile,
    TrafficClass,
    Watchdog,
)
from testbed.lab.core.schema.load import load_topology_text

FABRIC = "name: pod\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}\n"


def lab(qos: str, fabric: str = FABRIC) -> Lab:
    return load_topology_text(f"{fabric}qos:{qos}\n", file="t.yml")


def policy(qos: str) -> QosPolicy:
    found = lab(qos).qos
    assert found is not None
    return found


def profile(qos: str) -> QosProfile:
    return policy(qos).profiles[0]


def refused(qos: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        lab(qos)
    return caught.value


def by_name(found: QosProfile) -> dict[str, TrafficClass]:
    return {item.name: item for item in found.classes}


def bdp(value: float) -> Depth:
    return Depth(value, DepthUnit.BDP)


def test_without_the_section_ports_are_plain() -> None:
    assert load_topology_text(FABRIC, file="t.yml").qos is None


def test_an_empty_section_is_one_class_for_everything() -> None:
    found = profile("")
    assert found.preset == "custom"
    assert [(item.priority, item.default, item.weight, item.lossless) for item in found.classes] == [
        (0, True, 100, False)
    ]


def test_the_section_of_the_documentation() -> None:
    found = policy(
        """
  preset: uec
  classes:
    rdma: {dscp: [26], lossless: true, weight: 60, ecn: {kmin: 0.2bdp, kmax: 0.8bdp, pmax: 1.0},
           pfc: {xoff: auto, xon: auto}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40, limit: 4bdp}
  buffer: {shared: 16MB, alpha: 0.5}
  load_balancing: {mode: flow}
  trimming: false
  watchdog: {detect: 200ms, restore: 200ms}
"""
    )
    assert found == QosPolicy(
        profiles=(
            QosProfile(
                preset="uec",
                classes=(
                    TrafficClass(name="bulk", priority=0, default=True, weight=40, limit=bdp(4)),
                    TrafficClass(
                        name="rdma",
                        priority=3,
                        dscp=(26,),
                        weight=60,
                        lossless=True,
                        ecn=EcnCurve(kmin=bdp(0.2), kmax=bdp(0.8), pmax=1.0, mark_at=MarkAt.DEQUEUE),
                        pfc=PfcThresholds(),
                    ),
                    TrafficClass(name="control", priority=6, dscp=(48,), strict=True),
                ),
                buffer=Buffer(shared_bytes=16_000_000, alpha=0.5),
                watchdog=Watchdog(detect=Duration(200_000_000), restore=Duration(200_000_000)),
            ),
        )
    )


def test_every_key_of_a_class_and_of_the_section() -> None:
    found = profile(
        """
  classes:
    a: {dscp: [EF, cs1, 63], pcp: 7, weight: 70, lossless: true, pfc: {xoff: 1bdp, xon: 10KiB, headroom: 1.5kB},
        ecn: {kmin: 0B, kmax: 2 MB, pmax: 0.07, non_ect: drop}}
    b: {default: true, weight: 30, limit: 200KB, ecn: false, strict: false}
  buffer: {shared: 1.5GB, alpha: 8}
  load_balancing: {mode: flowlet, gap: 20us, hash: ebpf, polarised: true}
  trimming: true
  marks_account: false
  watchdog: {restore: 1s}
  base_rtt: 12us
"""
    )
    assert by_name(found)["a"] == TrafficClass(
        name="a",
        priority=7,
        dscp=(46, 8, 63),
        weight=70,
        lossless=True,
        pfc=PfcThresholds(xoff=bdp(1), xon=Depth(10240), headroom=Depth(1500)),
        ecn=EcnCurve(kmin=Depth(0), kmax=Depth(2_000_000), pmax=0.07, non_ect=NonEct.DROP),
    )
    assert by_name(found)["b"] == TrafficClass(name="b", priority=0, default=True, weight=30, limit=Depth(200_000))
    assert found.buffer == Buffer(shared_bytes=1_500_000_000, alpha=8)
    assert found.load_balancing == LoadBalancing(
        mode=BalancingMode.FLOWLET, gap=Duration(20_000), hash=HashEngine.EBPF, polarised=True
    )
    assert found.trimming
    assert not found.marks_account
    assert found.watchdog == Watchdog(detect=Duration(200_000_000), restore=Duration(1_000_000_000))
    assert found.base_rtt == Duration(12_000)


@pytest.mark.parametrize("name", QOS_PRESETS)
def test_a_preset_alone_is_that_preset(name: str) -> None:
    assert profile(f" {{preset: {name}}}") == QOS_PRESETS[name].profile


@pytest.mark.parametrize("name", QOS_PRESETS)
def test_the_documentations_classes_fit_every_preset(name: str) -> None:
    found = by_name(profile(f" {{preset: {name}, classes: {{rdma: {{lossless: true}}, bulk: {{limit: 4bdp}}}}}}"))
    assert set(found) == {"rdma", "control", "bulk"}
    assert found["rdma"].lossless
    assert found["rdma"].limit is None
    assert found["bulk"].limit == bdp(4)


def test_the_files_classes_are_all_where_no_preset_is_named() -> None:
    assert set(by_name(profile(" {classes: {x: {default: true}, y: {dscp: [10]}}}"))) == {"x", "y"}


def test_a_class_of_the_preset_is_changed_key_by_key() -> None:
    before = by_name(profile(" {preset: cisco}"))["rdma"]
    after = by_name(profile(" {preset: cisco, classes: {rdma: {ecn: {pmax: 0.5}, dscp: [24]}}}"))["rdma"]
    assert after.ecn == EcnCurve(kmin=before.ecn.kmin, kmax=before.ecn.kmax, pmax=0.5)
    assert after.dscp == (24,)
    assert (after.weight, after.lossless, after.priority) == (before.weight, before.lossless, before.priority)


def test_ecn_and_the_watchdog_can_be_switched_off_again() -> None:
    found = profile(" {preset: sonic, watchdog: false, classes: {rdma: {ecn: false}}}")
    assert found.watchdog is None
    assert by_name(found)["rdma"].ecn is None


def test_priorities_follow_from_the_dscp_the_default_is_0_and_the_rest_take_what_is_free() -> None:
    found = by_name(
        profile(
            " {classes: {a: {dscp: [26]}, b: {dscp: [24]}, c: {dscp: [5]}, d: {}, e: {default: true}, f: {pcp: 1}}}"
        )
    )
    # a: 26 >> 3; b wants 3, which is taken, and c takes 0; so b gets the next free after f's 1
    assert {name: item.priority for name, item in found.items()} == {"a": 3, "b": 0, "c": 2, "d": 4, "e": 5, "f": 1}


def test_priorities_are_in_order_and_all_different() -> None:
    found = profile(
        " {classes: {" + ", ".join(f"c{n}: {{dscp: [{n}]}}" for n in range(1, 8)) + ", z: {default: true}}}"
    )
    assert [item.priority for item in found.classes] == list(range(8))


def test_without_weights_the_classes_that_are_not_strict_share_equally() -> None:
    found = by_name(profile(" {classes: {a: {default: true}, b: {}, c: {}, s: {strict: true}}}"))
    assert {name: item.weight for name, item in found.items()} == {"a": 34, "b": 33, "c": 33, "s": 0}


def test_strict_classes_alone_need_no_weight() -> None:
    found = by_name(
        profile(" {classes: {a: {default: true, strict: true}, b: {dscp: [8], strict: true, lossless: true}}}")
    )
    assert [item.weight for item in found.values()] == [0, 0]
    assert found["b"].pfc == PfcThresholds()


def test_a_preset_class_made_strict_loses_its_weight_and_made_lossy_its_pauses() -> None:
    found = by_name(profile(" {preset: cisco, classes: {rdma: {strict: true, lossless: false}, bulk: {weight: 100}}}"))
    assert (found["rdma"].weight, found["rdma"].pfc) == (0, None)


def test_the_later_layer_wins_key_by_key() -> None:
    found = policy(
        """
  preset: cisco
  buffer: {alpha: 2}
  base_rtt: 1us
  kinds: {switch: {base_rtt: 2us, trimming: true}}
  tiers: {rail: {base_rtt: 3us}, spine: {base_rtt: 4us}}
  nodes: {p1-s1-rail1: {base_rtt: 5us}}
  ports: {"p1-s1-rail1:down1": {base_rtt: 6us}}
"""
    )

    def rtt_us(node: str, interface: str = "x") -> float:
        base_rtt = found.of(node, interface).base_rtt
        return base_rtt.ns / 1000

    assert rtt_us("p1-s1-h1") == 1
    assert rtt_us("p1-spine1") == 4
    assert rtt_us("p1-s2-rail1") == 3
    assert rtt_us("p1-s1-rail1") == 5
    assert rtt_us("p1-s1-rail1", "down1") == 6
    assert found.of("p1-s1-h1").trimming is False
    assert all(found.of(node).trimming for node in ("p1-spine1", "p1-s2-rail1", "p1-s1-rail1"))
    assert {item.buffer.alpha for item in found.profiles} == {2.0}


def test_a_kind_alone_is_enough_and_a_tier_is_more_specific() -> None:
    found = policy(" {preset: cisco, kinds: {switch: {base_rtt: 2us}}, tiers: {spine: {base_rtt: 4us}}}")
    assert found.of("p1-s1-rail1").base_rtt == Duration(2000)
    assert found.of("p1-spine2").base_rtt == Duration(4000)
    assert found.of("p1-s1-h1").base_rtt is None


def test_of_patterns_the_later_wins_and_a_full_name_over_all() -> None:
    found = policy(
        """
  nodes:
    p1-spine1: {base_rtt: 9us}
    "p1-spine*": {base_rtt: 1us}
    "*spine[12]": {base_rtt: 2us}
"""
    )
    assert found.of("p1-spine1").base_rtt == Duration(9000)
    assert found.of("p1-spine2").base_rtt == Duration(2000)
    assert found.of("p1-s1-rail1").base_rtt is None


def test_a_preset_in_a_layer_begins_anew() -> None:
    found = policy(
        """
  preset: cisco
  classes: {storage: {dscp: [10], weight: 10}, rdma: {weight: 50}}
  trimming: true
  tiers: {spine: {preset: nvidia, buffer: {alpha: 3}}}
"""
    )
    spine = found.of("p1-spine1")
    assert spine.preset == "nvidia"
    assert spine.buffer == Buffer(shared_bytes=QOS_PRESETS["nvidia"].profile.buffer.shared_bytes, alpha=3)
    assert (set(by_name(spine)), spine.trimming) == ({"rdma", "control", "bulk"}, False)


def test_equal_profiles_are_one() -> None:
    found = policy(
        """
  preset: cisco
  tiers: {rail: {base_rtt: 3us}, spine: {base_rtt: 3us}}
  nodes: {p1-s1-rail2: {base_rtt: 3us}, p1-s1-h1: {preset: cisco}}
  ports: {"p1-s1-rail1:down1": {base_rtt: 3us}}
"""
    )
    assert len(found.profiles) == 2
    assert found.of_port == {}
    assert "p1-s1-h1" not in found.of_node


def test_a_layer_that_says_nothing_is_none() -> None:
    assert policy(" {preset: sonic, tiers: {spine: }, nodes: {p1-spine1: }, kinds: }") == policy(" {preset: sonic}")


def test_what_a_layer_changes_is_not_held_against_what_it_inherits() -> None:
    """A limit, a pause, a gap said further out does not contradict what is said further in."""
    found = policy(
        """
  classes:
    a: {default: true, limit: 1MB, weight: 50}
    b: {dscp: [8], lossless: true, pfc: {xoff: 100KB}, weight: 50}
  load_balancing: {mode: flowlet, gap: 10us}
  tiers:
    rail: {classes: {a: {lossless: true}, b: {lossless: false}}, load_balancing: {mode: spray}}
    spine: {classes: {a: {strict: true}, b: {weight: 100}}}
"""
    )
    rail = by_name(found.of("p1-s1-rail1"))
    assert (rail["a"].limit, rail["a"].pfc, rail["b"].pfc) == (None, PfcThresholds(), None)
    assert found.of("p1-s1-rail1").load_balancing.mode is BalancingMode.SPRAY
    assert by_name(found.of("p1-spine1"))["a"].weight == 0


def test_automatic_thresholds_take_back_those_of_outer_layers() -> None:
    found = policy(
        """
  classes: {a: {default: true, lossless: true, pfc: {xoff: 100KB, headroom: 1MB}}}
  tiers: {spine: {classes: {a: {pfc: auto}}}, rail: {classes: {a: {pfc: {headroom: auto}}}}}
"""
    )
    assert found.of("p1-spine1").classes[0].pfc == PfcThresholds()
    assert found.of("p1-s1-rail1").classes[0].pfc == PfcThresholds(xoff=Depth(100_000))


def test_a_fault_of_the_fabric_is_told_once_however_many_layers_inherit_it() -> None:
    error = refused(
        """
  preset: cisco
  classes: {rdma: {weight: 61}}
  tiers: {rail: {base_rtt: 1us}, spine: {base_rtt: 2us}}
  nodes: {p1-spine1: {base_rtt: 3us}, "*h*": {base_rtt: 4us}}
"""
    )
    assert [problem.code for problem in error.problems] == ["weights"]


def test_faults_of_all_layers_come_together() -> None:
    error = refused(
        """
  preset: cisco
  tiers:
    rail: {classes: {rdma: {weight: 61}}}
    super-spine: {classes: {rdma: {weight: 62}}}
  nodes: {nobody: {}}
  ports: {"p1-spine1:down1": {classes: {rdma: {weight: 63}}}}
"""
    )
    assert [problem.code for problem in error.problems] == ["weights", "weights", "unknown-node", "weights"]


def test_a_value_set_from_outside_is_named_as_such() -> None:
    with pytest.raises(SpecError) as caught:
        load_topology_text(FABRIC, file="t.yml", overrides={"qos.preset": "uec", "qos.classes.rdma.weight": 10})
    (problem,) = caught.value.problems
    assert (problem.code, problem.file, problem.position) == ("weights", "<override>", None)


def test_a_buffer_that_holds_its_reserves_exactly_is_enough() -> None:
    text = " {{classes: {{a: {{default: true}}}}, buffer: {{shared: {}B}}}}"
    four_ports = 4 * 2 * 4514
    assert profile(text.format(four_ports)).buffer.shared_bytes == four_ports
    error = refused(text.format(four_ports - 1))
    assert error.problems[0].code == "buffer-too-small"
    assert "36.112 kB at least" in error.problems[0].message


def test_a_written_topology_reads_back_with_its_qos() -> None:
    settings = [
        "qos.preset=uec",
        "qos.classes.rdma={lossless: true, ecn: {kmin: 0.1bdp, kmax: 150KB}, dscp: [cs3]}",
        "qos.nodes={'p1-spine*': {base_rtt: 12us}}",
        'qos.ports={"p1-s1-rail1:down1": {trimming: false}}',
        "qos.watchdog=false",
    ]
    text = render_topology("pod", "rail-optimized", settings)
    assert "qos:\n  preset: uec\n" in text
    written = load_topology_text(text, file="pod.yml")
    assert len(written.qos.profiles) == 3
    rail = by_name(written.qos.of("p1-s1-rail1"))["rdma"]
    assert rail.ecn == EcnCurve(kmin=bdp(0.1), kmax=Depth(150_000), mark_at=MarkAt.DEQUEUE)
