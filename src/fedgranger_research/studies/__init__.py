"""Monte Carlo studies on simulated data."""
