"""Loops, clocks and files around the pure rounds."""
