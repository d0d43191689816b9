"""The report of a run: one static page."""

from fedgranger.report.html import render_report, write_report
from fedgranger.report.run_page import write_run_report

__all__ = ["render_report", "write_report", "write_run_report"]
