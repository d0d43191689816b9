"""Scores against a known truth."""
