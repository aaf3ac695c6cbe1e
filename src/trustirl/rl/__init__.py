"""Given a reward function, improve a policy."""
