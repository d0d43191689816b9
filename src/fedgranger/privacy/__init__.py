"""Differential privacy: how large a release is, how far one client's data move it, its noise."""
