"""The colours of values, as who sees no red, no green or no blue sees them: each step is darker than the one before, or
each is lighter.
"""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import testbed.api.console

SCALES = (Path(testbed.api.console.__path__[0]) / "static/core/scales.js").read_text()
RAMPS = {
    name: re.findall(r"#([0-9a-f]{6})", colours) for name, colours in re.findall(r"(light|dark): \[([^\]]+)\]", SCALES)
}
SIGHTS = {
    "all colours": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What is seen of linear RGB (Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, table 1, severity 1.0)."""
LEAST = 4.0
"""Apart in CIE lightness, of 100: several times what one just tells apart."""


def lightness(colour: str, sight: object) -> float:
    """L* of CIE 1976 of a colour as it is seen."""
    encoded = np.array([int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)])
    linear: NDArray[np.float64] = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(sight) @ linear, 0, 1)
    y = float(seen @ np.array([0.2126, 0.7152, 0.0722]))
    return 116 * y ** (1 / 3) - 16 if y > 216 / 24389 else y * 24389 / 27


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_steps_are_in_one_order_of_lightness(theme: str, sight: str) -> None:
    seen = [lightness(colour, SIGHTS[sight]) for colour in RAMPS[theme]]
    assert len(seen) == 7
    apart = [(after - before) * (1 if theme == "dark" else -1) for before, after in itertools.pairwise(seen)]
    assert min(apart) >= LEAST, [round(one, 1) for one in seen]


def test_a_rainbow_would_not_be() -> None:
    seen = [lightness(colour, SIGHTS["no green"]) for colour in ("0000ff", "00ffff", "00ff00", "ffff00", "ff0000")]
    assert sorted(seen) != seen and sorted(seen, reverse=True) != seen
