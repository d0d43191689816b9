"""`fedgranger federation`: a run between parties, on NVIDIA FLARE."""

from fedgranger.cli.federation import certificates, kits, party, status
from fedgranger.cli.federation.common import federation

__all__ = ["certificates", "federation", "kits", "party", "status"]
