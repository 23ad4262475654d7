"""The verb `decode`, ready to run."""

from pathlib import Path

import pytest
from decode_verb import Decode


@pytest.fixture
def decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Decode:
    return Decode(tmp_path / "capture.pcap", capsys)
