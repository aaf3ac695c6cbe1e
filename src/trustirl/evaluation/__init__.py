"""The only readers of the true reward."""
