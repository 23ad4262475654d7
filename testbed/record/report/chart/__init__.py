"""Drawings of numbers as SVG that takes its colours and fonts from the page it stands in."""

from testbed.record.report.chart.axis import Axis, linear_axis, log_axis, numbered_axis, rank_axis
from testbed.record.report.chart.figure import FigureStyle, draw_figure
from testbed.record.report.chart.heat_map import Shade, draw_heat_map
from testbed.record.report.chart.rows import Row, draw_rows
from testbed.record.report.chart.sheet import draw_sheet, style_sheet
from testbed.record.report.chart.svg import Drawing
from testbed.record.report.chart.xy import XYChart, label_room, thin
