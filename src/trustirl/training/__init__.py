"""Training from end to end, and the questions it is asked."""
