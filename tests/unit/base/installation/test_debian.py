"""Installing packages: what is refused, what apt is asked, and that services which a package starts stay off."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import CapabilityError
from testbed.base.installation import debian
from testbed.base.installation.errors import InstallationError
from testbed.base.installation.log import Log
from testbed.base.installation.packages import Level, Package
from testbed.cli.app import app

IPERF, FRR = Package(name="iperf3"), Package(name="frr", units=("frr.service", "more.socket"))


class RecordedLog(Log):
    """Runs nothing, and notes what it should have run; `answer` tells its exit code."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "log")
        self.begin()
        self.ran: list[str] = []
        self.answer: Callable[[str], int] = lambda _: 0

    def run(self, argv: Sequence[str], *, environment: object = None) -> int:
        words = " ".join(argv).replace("apt-get -q -y -o DPkg::Lock::Timeout=120", "apt")
        self.ran.append(words)
        return self.answer(words)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedLog:
    """As root on Debian, whose lists of packages are there."""
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "deb_Packages").touch()
    monkeypatch.setattr(debian, "LISTS", str(lists))
    monkeypatch.setattr(debian, "SYSTEMD", tmp_path)
    monkeypatch.setattr(debian, "release", lambda: "Somebody's Linux")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    lacks(monkeypatch, IPERF)
    return RecordedLog(tmp_path)


def lacks(monkeypatch: pytest.MonkeyPatch, *packages: Package) -> None:
    monkeypatch.setattr(debian, "missing_packages", lambda *_: list(packages))


def install(log: Log, **options: tuple[str, ...]) -> None:
    debian.install_packages(Level.LABS, log, **options)


def test_another_distribution_is_told_what_to_install(log: RecordedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(
        InstallationError, match="Somebody's Linux: packages are installed only on Debian 12, 13 and"
    ) as told:
        install(log)
    assert told.value.advice[0] == "install these and try again (Debian's names): iperf3"
    assert log.ran == []


def test_only_root_installs(log: RecordedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1)
    with pytest.raises(InstallationError, match="only root can install them: iperf3"):
        install(log)
    assert log.ran == []


def test_nothing_is_run_for_nothing(log: RecordedLog) -> None:
    install(log, without=("iperf3",))
    assert log.ran == []


def test_lists_are_fetched_where_there_are_none_or_old_ones(log: RecordedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "apt install --no-install-recommends iperf3"
    install(log)
    assert log.ran == [asked]
    log.ran.clear()
    log.answer = lambda words: int(words == asked and len(log.ran) == 1)
    install(log)
    assert log.ran == [asked, "apt update", asked]
    log.ran.clear()
    monkeypatch.setattr(debian, "LISTS", "/nowhere")
    install(log)
    assert log.ran == ["apt update", asked]


def test_apt_that_fails_shows_its_log(log: RecordedLog, capsys: pytest.CaptureFixture[str]) -> None:
    log.answer = lambda _: 100
    log.path.write_text("old\n" * 100 + "E: Unable to locate package iperf3\n")
    with pytest.raises(InstallationError, match="apt-get could not install iperf3") as told:
        install(log)
    assert told.value.advice == (f"the whole log: {log.path}",)
    said = capsys.readouterr().err
    assert "E: Unable to locate package iperf3" in said
    assert said.count("old") == 14


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt, SystemExit])
def test_services_are_held_while_they_are_installed(
    log: RecordedLog, monkeypatch: pytest.MonkeyPatch, ends: type[BaseException] | None
) -> None:
    """However the installation ends; a signal that ends us has them released, too."""
    lacks(monkeypatch, IPERF, FRR)

    def answer(words: str) -> int:
        if words.startswith("apt"):
            assert callable(signal.getsignal(signal.SIGTERM))
            if ends:
                raise ends
        return 0

    log.answer = answer
    if ends:
        with pytest.raises(ends):
            install(log)
    else:
        install(log)
    assert log.ran == [
        "systemctl mask --runtime frr.service more.socket",
        "apt install --no-install-recommends iperf3 frr",
        "systemctl unmask --runtime frr.service more.socket",
        "systemctl disable frr.service more.socket",
    ]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_without_systemd_what_has_started_is_stopped(
    log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "SYSTEMD", tmp_path / "none")
    monkeypatch.setattr(debian, "INIT_SCRIPTS", tmp_path)
    lacks(monkeypatch, Package(name="chrony", units=("chrony.service", "no-script.service")))
    (tmp_path / "chrony").touch(mode=0o755)
    install(log)
    assert log.ran[1:] == [f"{tmp_path}/chrony stop"]


def test_the_line_installs_what_is_missing_and_nothing_is_run(
    log: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks(monkeypatch, IPERF, FRR, Package(name="python3-dev"))
    line = debian.install_line(Level.LABS, without=("python3-dev",))
    assert line == (
        "env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120"
        " install --no-install-recommends iperf3 frr"
    )
    assert debian.install_line(Level.LABS, without=("iperf3", "frr", "python3-dev")) == ""
    assert log.ran == []


def test_without_apt_the_line_is_refused_with_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks(monkeypatch, IPERF, FRR)
    monkeypatch.setattr("shutil.which", lambda _: None)
    done = CliRunner().invoke(app, ["doctor", "--install-line"])
    assert isinstance(done.exception, CapabilityError)
    assert "iperf3 frr" in str(done.exception)
    assert done.stdout == ""
    lacks(monkeypatch)
    assert CliRunner().invoke(app, ["doctor", "--install-line"]).output == ""
