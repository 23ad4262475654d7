"""The key `guards:` of `fabric:` and of networks: what it means, and where its faults are."""

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import NO_GUARDS, Guard, Guards, Lab
from testbed.lab.core.schema.load import load_topology_text

BASE = "name: dc\nfabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}\n"


def load(guards: str) -> Lab:
    return load_topology_text(f"{BASE}networks:\n  frontend: {{guards: {guards}}}\n", file="dc.yml")


def test_without_the_key_there_are_no_guards() -> None:
    lab = load_topology_text(f"{BASE}networks: {{frontend: {{}}}}\n", file="dc.yml")
    assert lab.guards == lab.networks[0].guards == NO_GUARDS
    assert not lab.of_network("frontend").guards


@pytest.mark.parametrize(
    ("written", "guards"),
    [
        ("on", Guards.all()),
        ("off", NO_GUARDS),
        ("true", Guards.all()),
        ("yes", Guards.all()),
        ("No", NO_GUARDS),
        ("{source: off}", Guards(kinds=tuple(guard for guard in Guard if guard is not Guard.SOURCE))),
        ("{}", Guards.all()),
        ("{storm_pps: 50}", Guards(kinds=tuple(Guard), storm_pps=50)),
        ("{source: false}", Guards(kinds=tuple(guard for guard in Guard if guard is not Guard.SOURCE))),
    ],
)
def test_a_network_says_which_guards_it_has(written: str, guards: Guards) -> None:
    lab = load(written)
    assert lab.networks[0].guards == guards
    assert lab.of_network("frontend").guards == guards
    assert lab.guards == NO_GUARDS, "those of the back end are its own"
    assert decode_lab(encode_lab(lab)) == lab


def test_the_back_end_has_guards_of_its_own() -> None:
    text = BASE.replace("spines: 1", "spines: 1, guards: {mac: false}") + "networks: {a: {}}\n"
    lab = load_topology_text(text, file="dc.yml")
    assert Guard.MAC not in lab.guards and Guard.ARP in lab.guards
    assert not lab.networks[0].guards
    assert lab.of_network("backend").guards == lab.guards


@pytest.mark.parametrize(
    ("written", "code", "place", "words"),
    [
        ("strict", "unknown-value", "dc.yml:4:22", "not 'strict'"),
        ("[source]", "unknown-value", "dc.yml:4:22", "must be on, off"),
        ("{sorce: true}", "unknown-key", "dc.yml:4:23", "sorce"),
        ("{bgp: true}", "not-built", "dc.yml:4:23", "guard control"),
        ("{mac: maybe}", "wrong-type", "dc.yml:4:28", "must be true or false"),
        ("{storm_pps: 0}", "out-of-range", "dc.yml:4:34", "0"),
    ],
)
def test_faults_have_a_place(written: str, code: str, place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(written)
    problem = caught.value.problems[0]
    assert problem.code == code
    assert str(problem).startswith(place), str(problem)
    assert words in problem.message
