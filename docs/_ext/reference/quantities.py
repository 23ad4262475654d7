"""Every kind of quantity and the units that may stand behind its numbers."""

from __future__ import annotations

from reference.markdown import code, codes, plain, table
from testbed.base.units import BYTES, COUNT, MEASURES, MEASURES_OF_KEYS, NUMBER, PERCENT, SHARE

_SPELLINGS = {
    COUNT: "`1_000`, `1e3` and `1k` are one number",
    NUMBER: "also a percentage or a fraction: `12.5%` and `1/8` are `0.125`",
    SHARE: "from 0 to 1, a percentage, a fraction, or `ppm`: `7%` and `0.07` are one",
    PERCENT: "of keys that count percent: `40` and `40%` are one",
    BYTES: "`kB` is 1,000 bytes, `KiB` 1,024; keys about queues and workloads take `bdp`, too",
}


def page() -> str:
    rows = [
        (
            plain(measure.noun),
            code(measure.example),
            plain(measure.prefixes) or "none",
            codes(measure.words),
            _SPELLINGS.get(measure, ""),
        )
        for measure in MEASURES
    ]
    keys = [(code(f"...{ending}"), plain(measure.noun)) for ending, measure in MEASURES_OF_KEYS.items()]
    return (
        "# Quantities\n\n"
        "One reader reads the quantities of files and of options, each kind with the units below. Between number and"
        " unit there may be spaces; numbers may have an exponent (`1e9bps`) and underscores (`100_000Mbps`). What is"
        " ambiguous is refused, with the value as it may have been meant: `5MB` as a rate, `16m` as a size, `7` as a"
        " share.\n\n"
        + table(("Kind", "Such as", "Prefixes", "Units", "Beside that"), rows)
        + "\nA key whose name ends with a unit counts in it: a plain number is so many, and text with a unit is"
        " converted, so that `cc_cnp_us: 4us` and `cc_cnp_us: 4` are one.\n\n"
        + table(("Key", "Kind"), keys)
        + "\nA truth value is `true` or `false`, `on` or `off`, `yes` or `no`, also where a key has a word such as"
        " `off` beside others.\n"
    )
