"""Formats of demonstrations: read into plain fields (`checks.Fields`), written from them; none knows `Demos`."""
