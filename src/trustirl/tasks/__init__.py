"""Name -> task."""
