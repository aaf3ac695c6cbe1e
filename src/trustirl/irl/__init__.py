"""What every IRL method shares: terms of the objective, certificates, the builder and the only loop."""
