"""The report of a run: a static page and a picture of the graph."""

from fedgranger.report.graph import draw_graph
from fedgranger.report.html import render_report, write_report
from fedgranger.report.run import write_run_report

__all__ = ["draw_graph", "render_report", "write_report", "write_run_report"]
