"""Files that `trustirl reward export --format numpy` writes beside reward.npz: they need NumPy and nothing else."""
