"""Every kind of quantity in the keys of files: one rule for all, in the loader as in the JSON Schema."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.api.json_schema import scenario_schema, topology_schema
from testbed.base.errors import SpecError
from testbed.base.validation import engine
from testbed.base.yaml.reader import load_document
from testbed.lab.core.model import DepthUnit
from testbed.lab.core.model.tcp import TCP_CCS
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.run.schema.file import load_scenario

TOPOLOGY = (
    "name: lab\nfabric: {{design: rail-optimized, hosts: 2, gpus: 2, segments: 2, spines: 2, {fabric}}}\nqos: {qos}\n"
)
CLASSES = (
    "{{classes: {{rdma: {{dscp: {dscp}, lossless: {lossless}, weight: {weight}, ecn: {ecn}}},"
    " bulk: {{default: on, weight: {rest}}}}}}}"
)
SCENARIO = """\
name: sc
topology:
  inline: {{name: lab, fabric: {{design: rail-optimized, hosts: 2, gpus: 2, spines: 2}}, qos: {{preset: uec}}}}
transport: {transport}
workload: {workload}
faults: {faults}
probes: {probes}
expect: {expect}
"""
PLAIN = {
    "transport": "{kind: roce}",
    "workload": "{kind: incast, bytes: 1MB}",
    "faults": "[]",
    "probes": "auto",
    "expect": "[]",
}


@cache
def validator(scenario: bool) -> Draft202012Validator:
    return Draft202012Validator(scenario_schema() if scenario else topology_schema())


def topology(fabric: str = "mtu: 4500", qos: str = "{preset: uec}") -> str:
    return TOPOLOGY.format(fabric=fabric, qos=qos)


def classes(dscp: str = "26", lossless: str = "true", weight: str = "50", ecn: str = "false", rest: str = "50") -> str:
    return topology(qos=CLASSES.format(dscp=dscp, lossless=lossless, weight=weight, ecn=ecn, rest=rest))


def scenario(**keys: str) -> str:
    return SCENARIO.format(**{**PLAIN, **keys})


ACCEPTED = [
    *(topology(f"nic: {{rate: {rate}}}") for rate in ("400Gbps", "400 Gbit/s", "400GbE", "50 GB/s", "400000Mbps")),
    *(topology(f"uplink: {{delay: {delay}}}") for delay in ("5us", "5 µs", "5usec", "0.005ms")),
    *(topology(f"uplink: {{loss: {loss}}}") for loss in ("0.1%", "0.001", "1e-3", "1/1000", "10ppm")),
    *(topology(f"mtu: {mtu}") for mtu in ("9000", "9k", "9000B", '"9000"', "9e3")),
    *(topology(f"guards: {word}") for word in ("on", "off", "true", "false", "yes", "No", "enabled", "{mac: off}")),
    *(topology(f"routing: {{bfd: {word}}}") for word in ("off", "false", "no", "disabled", "auto")),
    *(topology(f"overlay: {word}") for word in ("none", "off", "false")),
    *(classes(lossless=word) for word in ("yes", "on", "true", "Enabled")),
    *(classes(weight=weight) for weight in ("50", "50%", '"50"')),
    *(classes(dscp=dscp) for dscp in ("26", "[26]", "cs6", "24-31", "[24-26, ef]")),
    *(classes(ecn=ecn) for ecn in ("false", "off", "no", "{kmin: 100B, kmax: 0.2 BDP, pmax: 7%}")),
    *(topology(qos=f"{{preset: uec, buffer: {{alpha: {alpha}}}}}") for alpha in ("1/8", "0.125", "12.5%", "8")),
    *(topology(qos=f"{{preset: uec, buffer: {{shared: {size}}}}}") for size in ("64 MB", "64MiB", "64Mi", "64M")),
    *(
        scenario(transport=f"{{kind: roce, cc: dcqcn, {key}}}")
        for key in (
            *("cc_additive_bps: 5M", "cc_additive_bps: 5e6", "cc_cnp_us: 4us", "cc_cnp_us: 4"),
            *("cc_counter_bytes: 10MB", "cc_counter_bytes: 64KiB", "cc_g: 1/256"),
        )
    ),
    *(scenario(transport=f"{{kind: uet, payload_bytes: {size}}}") for size in ("4k", "4KiB", "4096")),
    *(scenario(transport=f"{{kind: uet, tss: {word}}}") for word in ("on", "yes", "true")),
    *(scenario(workload=f"{{kind: incast, bytes: {size}}}") for size in ("1MiB", "1e6B", "1000000", "64 bdp", "1e6")),
    *(scenario(workload=f"{{kind: incast, bytes: 1MB, jitter: {time}}}") for time in ("0", "5us", "0s")),
    *(scenario(workload=f"{{kind: mice, load: {share}}}") for share in ("20%", "1/5", "0.2")),
    *(
        scenario(faults=f'[{{at: 0, link: "p1-s1-rail1:uplink1", set: {{{key}}}}}]')
        for key in ("rate: 50%", "rate: 100 Gbit/s", "loss: 1/8", "delay: 5 µs", "silent: on")
    ),
    *(scenario(probes=word) for word in ("off", "no", "false", "auto", "{rate: 50pps}")),
    *(
        scenario(expect=f"[{{metric: {metric}, {bound}, source: a formula}}]")
        for metric, bound in (
            *(("aggregate_share", one) for one in ("min: 64%", "min: 0.64", "max: 1.02", "min: 16/25")),
            *(("jct", one) for one in ("max: 900ms", "max: 0.9", "max: 9e-1s")),
            ("aggregate_share", "within: oracle, tolerance: 8pp"),
            ("aggregate_share", "within: oracle, tolerance: 8 %"),
        )
    ),
]
"""Files with a spelling each."""

FAULT_RATE = '[{{at: 0, link: "p1-s1-rail1:uplink1", set: {{rate: {}}}}}]'
FAULT_DELAY = FAULT_RATE.replace("rate:", "delay:")
BUFFERED = "{{classes: {{rdma: {{weight: 50, {}}}, bulk: {{default: on, weight: 50}}}}, buffer: {{shared: 64MB}}}}"

REWRITTEN = [
    (topology, "nic: {{rate: {}}}", "400", "400G"),
    (topology, "nic: {{rate: {}}}", "50GB", "50GB/s"),
    (topology, "uplink: {{loss: {}}}", "5", "5%"),
    (topology, "uplink: {{delay: {}}}", "5US", "5us"),
    (topology, "uplink: {{delay: {}}}", "5 microsec", "5us"),
    (topology, "uplink: {{count: {}}}", "2x", "2"),
    (topology, "routing: {{bfd: {}}}", "300", "{interval: 300ms, multiplier: 3}"),
    *(
        (lambda text: topology(qos=text), "{{preset: uec, buffer: {{alpha: {}}}}}", one, "1/8")
        for one in ("2^-3", "1:8")
    ),
    (lambda text: classes(ecn=text), "{{kmin: {}, kmax: 1bdp}}", "55%", "0.55bdp"),
    (lambda text: classes(ecn=text), "{{kmin: {}, kmax: 9MB}}", "10us", "500kB"),
    *((lambda text: classes(ecn=text), "{{kmin: {}, kmax: 1bdp}}", of, "0.2bdp") for of in ("20% of bdp", "1/5 BDP")),
    *(
        (lambda text: topology(fabric="nic: {rate: 100G}", qos=BUFFERED.format(text)), key, wrong, right)
        for key, wrong, right in (
            ("limit: {}", "55%", "35.2MB"),
            ("limit: {}", "10us", "125kB"),
            ("lossless: on, pfc: {{xoff: 1MB, xon: {}}}", "10us", "125kB"),
            ("lossless: on, pfc: {{headroom: {}}}", "10us", "125kB"),
            ("lossless: on, pfc: {{headroom: {}}}", "300m", "37.5kB"),
        )
    ),
    (topology, "uplink: {{delay: {}}}", "200m", "1us"),
    (topology, "uplink: {{delay: {{value: 1us, jitter: {}}}}}", "1m", "1ms"),
    (lambda text: topology(qos=text), "{{preset: uec, base_rtt: {}}}", "4m", "4ms"),
    (lambda text: scenario(faults=text), FAULT_RATE, "0.5", "50%"),
    (lambda text: scenario(faults=text), FAULT_RATE, "1/2", "50%"),
    (lambda text: scenario(faults=text), FAULT_DELAY, "200m", "1us"),
    (lambda text: scenario(workload=text), "{{kind: mice, load: {}}}", "300m", "0.3"),
    (lambda text: scenario(transport=text), "{{kind: roce, cc: dcqcn, cc_g: {}}}", "256", "1/256"),
    (lambda text: scenario(transport=text), "{{kind: roce, cc: dcqcn, cc_additive_bps: {}}}", "0", "5000000"),
    *((lambda text: scenario(transport=text), "{{kind: tcp, cc: {}}}", one, "cubic") for one in ("cubik", "CUBIC")),
    (lambda text: classes(ecn=text), "{{kmin: 1kB, kmax: 1MB, pmax: {}}}", "7", "7%"),
    (lambda text: classes(weight=text, rest="60%"), "{}", "0.4", "40"),
    (lambda text: scenario(transport=text), "{{kind: roce, cc: dcqcn, cc_additive_bps: {}}}", "5MB", "5MB/s"),
    (lambda text: scenario(workload=text), "{{kind: incast, bytes: {}}}", "16mb", "16MB"),
    (lambda text: scenario(expect=text), "[{{metric: aggregate_share, min: {}, source: a formula}}]", "90", "90%"),
]
"""A key, what is refused there, and what its hint says to write."""


NEVER_A_DELAY = ("2h", "1m", "1.5s", "2000m")


@pytest.mark.parametrize("time", NEVER_A_DELAY)
@pytest.mark.parametrize(
    "make",
    [
        lambda time: topology(f"uplink: {{delay: {time}}}"),
        lambda time: topology(f"uplink: {{delay: {{value: 1us, jitter: {time}}}}}"),
        lambda time: topology(qos=f"{{preset: uec, base_rtt: {time}}}"),
        lambda time: topology(qos=f"{{preset: uec, load_balancing: {{mode: flowlet, gap: {time}}}}}"),
        lambda time: scenario(faults=f'[{{at: 0, link: "p1-s1-rail1:uplink1", set: {{delay: {time}}}}}]'),
    ],
)
def test_no_time_of_the_real_network_is_above_a_second(make: Any, time: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="at most 1 s") as caught:
        load(make(time), tmp_path)
    (problem,) = caught.value.problems
    assert problem.position is not None
    assert ("m is minutes" in (problem.hint or "")) == time.endswith("m")


def test_spans_of_lab_time_may_have_minutes(tmp_path: Path) -> None:
    load(topology(qos="{preset: uec, watchdog: {detect: 1m, restore: 0.1h}}"), tmp_path)
    load(scenario(faults='[{at: 1m, until: 2min, link: "p1-s1-rail1:uplink1", down: true}]'), tmp_path)


@pytest.mark.parametrize("time", ["5h", "20min"])
def test_a_hint_names_no_depth_that_a_port_cannot_have(time: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(classes(ecn=f"{{kmin: {time}, kmax: 1bdp}}"), tmp_path)
    assert [one.hint for one in caught.value.problems] == [
        "no port of a switch can hold what is sent in that time: write a size, such as 150KB"
    ]


def test_units_of_a_depth_name_bdp(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"one of B, .*, bdp"):
        load(classes(ecn="{kmin: 5 cells, kmax: 1bdp}"), tmp_path)


def test_congestion_controls_that_another_kernel_has_are_valid(tmp_path: Path) -> None:
    for known in TCP_CCS:
        load(scenario(transport=f"{{kind: tcp, cc: {known}}}"), tmp_path)
    with pytest.raises(SpecError, match="no congestion control 'zzz'") as caught:
        load(scenario(transport="{kind: tcp, cc: zzz}"), tmp_path)
    assert "one of reno, cubic" in str(caught.value)


@pytest.mark.parametrize(("value", "message"), [("cc_g: 0", "above 0"), ("cc_alpha_us: 0", "above 0")])
def test_parameters_that_cannot_work_have_a_place(value: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        load(scenario(transport=f"{{kind: roce, {value}}}"), tmp_path)
    (problem,) = caught.value.problems
    assert problem.position is not None and problem.path == f"transport.{value.partition(':')[0]}"
    assert "the default is" in (problem.hint or "")


def load(text: str, directory: Path) -> Any:
    if not text.startswith("name: sc"):
        return load_topology_text(text, file="lab.yml")
    path = directory / "sc.yml"
    path.write_text(text)
    return load_scenario(path)


@pytest.mark.parametrize("text", ACCEPTED, ids=lambda text: text.replace("\n", " ")[-90:])
def test_a_spelling_is_accepted_by_the_loader_and_the_schema(text: str, tmp_path: Path) -> None:
    load(text, tmp_path)
    data = load_document(text, "x.yml").data
    assert [error.message for error in validator(text.startswith("name: sc")).iter_errors(data)] == []


@pytest.mark.parametrize(
    ("make", "key", "wrong", "right"), REWRITTEN, ids=lambda one: one if isinstance(one, str) else ""
)
def test_what_is_not_plain_is_refused_with_the_value_rewritten(
    make: Any, key: str, wrong: str, right: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        load(make(key.format(wrong)), tmp_path)
    (problem,) = caught.value.problems
    assert right in (problem.hint or "")
    assert problem.position is not None
    load(make(key.format(right)), tmp_path)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (topology("ecmp: 128"), "write routing: {ecmp: 128}"),
        (topology("delay: 500ns"), "it is a key of uplink and of core_uplink"),
        (topology("spine: 2"), "did you mean 'spines'?"),
        (topology() + "guards: on\n", "it is a key of fabric and of networks.NAME"),
        (scenario() + "seed: 1\n", "write repeat: {seed: 1}"),
    ],
)
def test_a_key_of_another_section_is_sent_there_unless_it_is_misspelt(written: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(written, tmp_path)
    assert [(one.code, one.hint) for one in caught.value.problems] == [("unknown-key", hint)]


def test_the_sections_of_a_file_are_walked_once_however_many_keys_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[object] = []
    below = engine._sections_below
    monkeypatch.setattr(engine, "_sections_below", lambda *section: walked.append(section) or below(*section))
    counts = []
    for unknown in (1, 300):
        walked.clear()
        with pytest.raises(SpecError, match="key0: unknown key"):
            load_topology_text(topology() + "".join(f"key{number}: 1\n" for number in range(unknown)), file="lab.yml")
        counts.append(len(walked))
    assert counts[0] == counts[1] > 0


def test_a_key_of_the_command_line_is_sent_elsewhere_with_dots(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text(topology())
    for wrong, right in (("fabric.ecmp", "fabric.routing.ecmp"), ("pods", "fabric.pods")):
        with pytest.raises(SpecError) as caught:
            load_topology(file, overrides={wrong: 2})
        assert [one.hint for one in caught.value.problems] == [f"write {right}=2"]
    assert load_topology(file, overrides={"fabric.routing.ecmp": 2}).routing.ecmp == 2


def test_values_are_what_they_say(tmp_path: Path) -> None:
    lab = load(classes("24-26", ecn="{kmin: 150 B, kmax: 1 BDP, pmax: 7%}", weight="40%", rest="60"), tmp_path)
    traffic_class = next(one for one in lab.qos.profiles[0].classes if one.name == "rdma")
    assert traffic_class.dscp == (24, 25, 26)
    assert traffic_class.weight == 40
    assert traffic_class.ecn.pmax == 0.07
    assert traffic_class.ecn.kmax.unit is DepthUnit.BDP
    point = load(scenario(transport="{kind: roce, cc: dcqcn, cc_additive_bps: 5M, cc_cnp_us: 4us}"), tmp_path)
    assert point.transport.options == {"cc_additive_bps": 5e6, "cc_cnp_us": 4.0}
