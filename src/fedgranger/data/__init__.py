"""Panels, files and simulation."""
