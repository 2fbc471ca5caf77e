"""Thresholds from an error budget, and the score that takes the place of the cosine in the bands."""
