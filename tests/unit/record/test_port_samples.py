"""The samples of ports beside a record: what is written is read again, and what a stranger wrote is refused."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from testbed.base.errors import RecordError
from testbed.record.port_samples import METRICS, PortSamples, read_port_samples, samples_path, write_port_samples

PORTS = ("p1-s1-h1:rail1", "p1-s1-rail1:down1")


def samples(times: int = 3) -> PortSamples:
    columns = {name: np.arange(times * len(PORTS), dtype=np.int32).reshape(times, -1) for name in METRICS}
    return PortSamples(at_s=np.arange(times) / 10, ports=PORTS, columns=columns)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = samples_path(tmp_path / "record.json", "mode=spray", 2)
    write_port_samples(samples(), path)
    found = read_port_samples(path)
    assert found is not None and found.ports == PORTS
    assert np.array_equal(found.at_s, samples().at_s)
    assert all(np.array_equal(found.columns[name], samples().columns[name]) for name in METRICS)


def test_each_run_of_each_point_has_a_file_of_its_own(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    paths = {samples_path(record, point, run) for point in ("", "../../etc", "a b") for run in (1, 2)}
    assert len(paths) == 6
    assert {path.parent for path in paths} == {tmp_path / "samples"}, "the name of a point is no path"


def test_no_file_is_no_samples(tmp_path: Path) -> None:
    assert read_port_samples(tmp_path / "none.npz") is None


def _archive(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=True, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _columns(shape: tuple[int, int]) -> dict[str, object]:
    return {name: np.zeros(shape, np.int32) for name in METRICS}


def _bomb() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("at_s.npy", bytes(70 << 20))
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\x03\x04 not an archive", id="cut-short"),
        pytest.param(_archive(schema=np.array([1])), id="without-columns"),
        pytest.param(
            _archive(schema=np.array([9]), at_s=np.zeros(1), ports=np.array([b"a"]), **_columns((1, 1))), id="newer"
        ),
        pytest.param(
            _archive(schema=np.array([1]), at_s=np.zeros(2), ports=np.array([b"a"]), **_columns((1, 1))), id="shapes"
        ),
        pytest.param(
            _archive(schema=np.array([1]), at_s=np.array([2.0, 1.0]), ports=np.array([b"a"]), **_columns((2, 1))),
            id="back-in-time",
        ),
        pytest.param(
            _archive(schema=np.array([1]), at_s=np.array([np.nan]), ports=np.array([b"a"]), **_columns((1, 1))),
            id="nan",
        ),
        pytest.param(
            _archive(schema=np.array([1]), at_s=np.array([{}], object), ports=np.array([b"a"]), **_columns((1, 1))),
            id="pickled",
        ),
        pytest.param(_bomb(), id="bomb"),
    ],
)
def test_what_is_damaged_or_hostile_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    path.write_bytes(content)
    with pytest.raises(RecordError):
        read_port_samples(path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "real.npz"
    write_port_samples(samples(), path)
    (tmp_path / "link.npz").symlink_to(path)
    with pytest.raises(RecordError, match="link"):
        read_port_samples(tmp_path / "link.npz")
