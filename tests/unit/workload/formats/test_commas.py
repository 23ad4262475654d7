"""The matrix of nccl-tests with commas between its values, as spreadsheets write it."""

import pytest

from testbed.base.errors import SpecError
from testbed.workload.formats.alltoallv import decode_alltoallv_matrix
from testbed.workload.formats.conventions import FileFormat, recognise

PLAIN = "0 160 320\n480 0 640\n800 960 0\n"


@pytest.mark.parametrize("comma", [",", ", ", " ,"])
def test_commas_separate_as_white_space_does(comma: str) -> None:
    text = PLAIN.replace(" ", comma)
    assert recognise(text.encode(), file="m.csv") is FileFormat.ALLTOALLV
    assert decode_alltoallv_matrix(text, file="m.csv", name="m") == decode_alltoallv_matrix(
        PLAIN, file="m.txt", name="m"
    )


def test_commas_of_thousands_are_none() -> None:
    with pytest.raises(SpecError, match="'1,000'"):
        decode_alltoallv_matrix("0 1,000\n2,000 0\n", file="m.txt", name="m")
    with pytest.raises(SpecError, match=r"not-square|'0,000'"):
        decode_alltoallv_matrix("0,000 1,000\n2,000 0,000\n" * 2, file="m.txt", name="m")


def test_a_file_without_rows_is_empty() -> None:
    for text in (b"", b"\n  \n# nothing\n"):
        with pytest.raises(SpecError, match="empty: the file has no rows"):
            recognise(text, file="t.txt")
