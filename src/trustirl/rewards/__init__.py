"""Learned rewards: loaded, called, wrapped, saved, whatever the world."""
