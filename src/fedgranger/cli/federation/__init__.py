"""`fedgranger federation`: a run between parties, on NVIDIA FLARE."""

from fedgranger.cli.federation import certificates, kits, party, runs
from fedgranger.cli.federation.common import federation

__all__ = ["certificates", "federation", "kits", "party", "runs"]
