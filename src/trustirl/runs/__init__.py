"""A run on disk, and what it holds: policies, rewards, films."""
