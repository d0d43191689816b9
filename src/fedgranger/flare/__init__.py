"""NVIDIA FLARE as the engine of a federated run: a thin adapter (extra `flare`)."""
