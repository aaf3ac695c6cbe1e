"""The HTML report of a run in the exact world, made from the run's files alone."""

from trustirl.report.page import write_report
from trustirl.report.runs import RunFiles, read_run

__all__ = ["RunFiles", "read_run", "write_report"]
