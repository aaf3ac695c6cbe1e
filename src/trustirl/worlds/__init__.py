"""Where a question is asked: the exact world, whose MDP is known, and control, where experience is sampled."""
