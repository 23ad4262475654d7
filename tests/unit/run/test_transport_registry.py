"""A transport is three files of one name, and nothing else asks which transport it has before it."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import small_lab

import testbed
from testbed.api.json_schema import scenario_schema
from testbed.base.errors import ScenarioError
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.transport_registry import transport_names, worker_transport
from testbed.protocols.uet.congestion.registry import CONTROLLERS
from testbed.protocols.uet.paths import PathKind
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TRANSPORTS, TransportKind
from testbed.run.transports.lab_transport import LabTransport, PathChoice
from testbed.run.transports.registry import transport_class, transport_on

SOURCE = Path(testbed.__file__).parent


def lab() -> Any:
    model, plan = small_lab(k=1000.0)
    return SimpleNamespace(name="fake", model=model, plan=plan)


def test_every_declared_transport_is_there_on_labs_and_in_workers() -> None:
    assert list(TRANSPORTS) == [kind.value for kind in TransportKind]
    assert sorted(TRANSPORTS) == list(transport_names())
    for name, declared in TRANSPORTS.items():
        assert declared.kind.value == name and declared.description
        assert issubclass(transport_class(declared.kind), LabTransport)
        assert worker_transport(name).settings.kind == name


def test_a_worker_imports_no_transport_by_a_name_that_is_none() -> None:
    for name in ("quic", "", "..tcp", "tcp.os", None, ["tcp"]):
        with pytest.raises(ProgramError, match="is none of " + ", ".join(transport_names())):
            worker_transport(name)


def test_nothing_else_names_a_kind_of_transport() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path != SOURCE / "run/schema/transports.py" and "TransportKind" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "TransportKind"
    ]
    assert found == []


@pytest.mark.parametrize("kind", TransportKind)
def test_an_option_that_a_transport_does_not_have_is_refused_with_the_nearest(kind: TransportKind) -> None:
    option = next(
        one for one in TRANSPORTS[kind.value].parameters if one.name == "mpr" or kind is not TransportKind.UET
    )
    with pytest.raises(ScenarioError, match=f"{kind.upper()} has none called '{option.name}s'"):
        transport_on(lab(), Transport(kind=kind, options={f"{option.name}s": 1}))


def test_files_take_the_words_of_uet_from_its_registries() -> None:
    keys = scenario_schema()["$defs"]["transport-uet"]["properties"]
    assert keys["cc"]["enum"] == list(CONTROLLERS)
    assert keys["paths"]["enum"] == [kind.value for kind in PathKind]


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        (Transport(kind=TransportKind.TCP), PathChoice.HASHED),
        (Transport(kind=TransportKind.UET), PathChoice.ADAPTIVE),
        (Transport(kind=TransportKind.UET, paths="oblivious"), PathChoice.OBLIVIOUS),
        (Transport(kind=TransportKind.UET, paths="single"), PathChoice.HASHED),
        (Transport(kind=TransportKind.UET, options={"mode": "rod"}), PathChoice.HASHED),
    ],
)
def test_how_packets_choose_their_path(transport: Transport, expected: PathChoice) -> None:
    """Ordered delivery keeps to one path, whatever `paths` says by default (UE Specification 1.0, section 3.6.16)."""
    assert transport_on(lab(), transport).path_choice is expected


def test_a_transport_without_programs_sends_for_no_duration() -> None:
    subject: Any = transport_on(lab(), Transport(kind=TransportKind.UET))
    with pytest.raises(ScenarioError, match="no program sends over uet for a duration"):
        subject.run_timed(None, None, None, None)
