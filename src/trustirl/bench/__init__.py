"""Suites of experiments: what they ask, what is left to do, and who does it."""
