"""The pages of runs and of their comparison, made from the files of runs alone."""

from trustirl.report.compare import report, write_comparison
from trustirl.report.page import write_report
from trustirl.report.runs import RunFiles, read_run

__all__ = ["RunFiles", "read_run", "report", "write_comparison", "write_report"]
