"""The reference part of the site, written from the code when the site is built.

The pages are made of what the command line says to programs (its own options, `metrics -f json`, `schema`, ...), of the
table of error codes, and of the files in scenarios/ and topologies/. They stand in docs/reference/, which git ignores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from reference import catalogues, commands, errors, exit_codes, keys, packages, quantities, shipped, simulated, states
from reference.command_line import json_of

PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "commands": commands.page,
        "exit-codes": exit_codes.page,
        "topology-keys": keys.topology_page,
        "scenario-keys": keys.scenario_page,
        "price-keys": keys.prices_page,
        "quantities": quantities.page,
        "transports": keys.transports_page,
        "faults": keys.faults_page,
        "workloads": catalogues.workloads_page,
        "metrics": catalogues.metrics_page,
        "record": keys.record_page,
        "designs": catalogues.designs_page,
        "topologies": shipped.topologies_page,
        "scenarios": shipped.scenarios_page,
        "simulation": simulated.page,
        "errors": errors.page,
        "packages": packages.page,
        "pdc-states": states.page,
    }
)
"""The text of each page by its name, in MyST."""


def write_pages(directory: Path) -> None:
    """Write every page whose text has changed, and remove those that are no longer made."""
    directory.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = directory / f"{name}.md", page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    (directory / keys.RECORD_SCHEMA_FILE).write_text(json.dumps(json_of("schema", "record"), indent=2) + "\n")
    for path in directory.glob("*.md"):
        if path.stem not in PAGES:
            path.unlink()


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "reference"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
