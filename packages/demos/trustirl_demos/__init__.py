"""Demonstrations that are too large for the wheel of trustirl, which finds them here as packaged:TASK."""
