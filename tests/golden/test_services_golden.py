"""Services of the management network, as they are configured and started: services/NAME.txt, for review as a diff."""

import sys
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.model.management import SERVICES
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management import services
from testbed.lab.features.management.services import aaa
from testbed.lab.features.management.services.registry import REGISTRY
from testbed.lab.features.management.services.service import Place
from testbed.lab.features.management.services_apply import service_places

CORPUS = Path(__file__).with_name("services")
NODES = ("mgmt1", "p1-s1-rail1", "p1-s1-h1")
MACHINES = ("passwd", "group")
"""Files of which most is this machine's."""
TEXT = f"""name: lab
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks: {{management: {{design: out-of-band, services: [{", ".join(SERVICES)}]}}}}
"""


@pytest.fixture(scope="module")
def places() -> list[Place]:
    lab = load_topology_text(TEXT, file="lab.yml")
    state = StateDirectory(Path("/var/lib/testbed"), Path("/run/testbed"))
    found = service_places(lab, plan_lab(lab, k=1000), state)
    return [place for place in found if place.node in NODES]


def _anywhere(text: str) -> str:
    """A text without the places of this Python and of this checkout."""
    package = Path(services.__file__).parent
    return text.replace(sys.executable, "PYTHON").replace(str(package), "SERVICES")


def as_text(place: Place) -> str:
    """The files that are no secrets, and the command lines with their users and rights."""
    service = REGISTRY[place.service]
    parts = [
        f"--- {place.directory / name}\n{_anywhere(file.text)}"
        for name, file in service.files(place).items()
        if not file.secret and name not in MACHINES
    ]
    for program in service.programs(place):
        words = ["PYTHON" if word == sys.executable else word for word in program.arguments]
        rights = ", ".join(program.capabilities) or "no capabilities"
        parts.append(f"--- {program.name} of {place.node} as {program.user or 'root'}: {rights}\n{' '.join(words)}\n")
    return "".join(parts)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_configured_as_reviewed(
    service: str, places: list[Place], golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("secret")
    monkeypatch.setattr(
        "testbed.lab.features.management.services.redfish.password_file", lambda _: tmp_path / "password"
    )
    monkeypatch.setattr("testbed.lab.features.management.services.slurm.version", lambda: (24, 11))
    monkeypatch.setattr("testbed.lab.features.management.services.aaa.accounts_directory", lambda _: tmp_path)
    for account in (*aaa.ACCOUNTS, *(f"secret-{node}" for node in places[0].lab.served)):
        (tmp_path / account).write_text("secret")
    text = "".join(as_text(place) for place in places if place.service == service)
    assert text
    golden(CORPUS / f"{service}.txt").check(text)
