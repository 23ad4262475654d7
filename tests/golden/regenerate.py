"""Rewrite what the golden tests of `testbed.spec` and of commands compare with: `python tests/golden/regenerate.py`.

Review the difference line by line before committing it: each message must say what is wrong, where, and what to do.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    from test_bad_scenarios import BAD_SCENARIOS, text_of
    from test_bad_topologies import FILES, problems_of
    from test_command_golden import GOLDEN, golden_text

    from testbed.spec.schema import SCENARIO_SCHEMA_FILE, SCHEMA_FILE, scenario_schema, schema_text, topology_schema

    for path in FILES:
        path.with_suffix(".txt").write_text(f"{problems_of(path)}\n")
    for path in BAD_SCENARIOS:
        path.with_suffix(".txt").write_text(text_of(path))
    SCHEMA_FILE.write_text(schema_text(topology_schema()))
    SCENARIO_SCHEMA_FILE.write_text(schema_text(scenario_schema()))
    GOLDEN.write_text(golden_text())
    bad = f"{len(FILES)} bad topologies and {len(BAD_SCENARIOS)} bad scenarios"
    print(f"wrote the texts of {bad}, both schemas, and the commands")


if __name__ == "__main__":
    main()
