"""Archives are unpacked below their directory and nowhere else, by any Python that we run on."""

import io
import tarfile
from pathlib import Path

import pytest

from testbed.vm.archives import extract_member, extract_own


@pytest.fixture(params=["filters", "no filters"], autouse=True)
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python's tarfile, and that of Debian 12, which takes no filter."""
    if request.param == "filters" and not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filters")
    if request.param == "no filters":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)


def archive(*members: tarfile.TarInfo) -> tarfile.TarFile:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return tarfile.open(fileobj=io.BytesIO(buffer.getvalue()))


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = 0o755
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def test_files_directories_and_links_within(tmp_path: Path) -> None:
    with archive(
        member("a", type=tarfile.DIRTYPE),
        member("a/file", size=3),
        member("a/link", type=tarfile.SYMTYPE, linkname="file"),
    ) as tar:
        for one in tar.getmembers():
            extract_member(tar, one, tmp_path)
    assert (tmp_path / "a/link").read_text() == "xxx"


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside", size=1),
        member("a/../../outside", size=1),
        member("link", type=tarfile.SYMTYPE, linkname="../outside"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc"),
        member("hard", type=tarfile.LNKTYPE, linkname="../outside"),
        member("device", type=tarfile.CHRTYPE),
    ],
    ids=lambda one: f"{one.name} {one.linkname}".strip(),
)
def test_what_reaches_out_is_refused(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").write_text("mine")
    with archive(bad) as tar, pytest.raises(tarfile.TarError):
        extract_member(tar, tar.getmembers()[0], inside)
    assert list(inside.iterdir()) == []
    assert (tmp_path / "outside").read_text() == "mine"


def test_an_archive_of_ours(tmp_path: Path) -> None:
    with archive(member("a", type=tarfile.DIRTYPE), member("a/file", size=3)) as tar:
        extract_own(tar, tmp_path)
    assert (tmp_path / "a/file").read_text() == "xxx"
