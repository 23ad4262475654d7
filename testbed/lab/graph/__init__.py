"""Pictures of a lab: HTML to look at, dot and mermaid for other tools."""

from testbed.lab.graph.dot import render_dot
from testbed.lab.graph.drawio import render_drawio
from testbed.lab.graph.mermaid import render_mermaid
from testbed.lab.graph.page import render_html
