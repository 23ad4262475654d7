"""Settings of the site: `./lab docs` builds it with Sphinx, strictly and without a network."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "testbed"
html_title = "testbed"
extensions = ["myst_parser", "reference"]
exclude_patterns = ["_ext/**"]

nitpicky = True
smartquotes = False  # "--set" is not "–set"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "attrs_block"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    app.connect("source-read", _expand_patterns)


def _expand_patterns(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace a pattern in the list of pages by the pages that no earlier line names.

    Sphinx has such patterns, but takes one without a page for a mistake, which says nothing: a page that is in no list
    is one all the same.
    """
    if page != app.config.root_doc:
        return
    lines: list[str] = []
    for line in source[0].splitlines():
        if re.fullmatch(r"[\w/-]+\*", line):
            found = sorted(str(path.relative_to(HERE).with_suffix("")) for path in HERE.glob(f"{line}.md"))
            lines += [name for name in found if name not in lines]
        else:
            lines.append(line)
    source[0] = "\n".join(lines)
