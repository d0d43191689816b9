"""`fedgranger federation`: a run between parties, on NVIDIA FLARE."""

from fedgranger.cli.federation import certificates, site_commands, site_records, status
from fedgranger.cli.federation.common import federation

__all__ = ["certificates", "federation", "site_commands", "site_records", "status"]
