"""The vocabulary: measures, records of pure functions, the tabular MDP. Imports nothing else of ours."""
