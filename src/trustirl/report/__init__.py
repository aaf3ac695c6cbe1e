"""The HTML report of a run, made from the run's files alone."""

from trustirl.report.page import write_report
from trustirl.report.runs import ControlRun, ExactRun, RunFiles, read_run

__all__ = ["ControlRun", "ExactRun", "RunFiles", "read_run", "write_report"]
