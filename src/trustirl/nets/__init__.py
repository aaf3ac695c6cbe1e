"""Function approximators."""
