"""Errors and warnings of the package.

Every error is one sentence that names what was wrong (client, column, row, value) and what to
do about it. The command line turns any `FedGrangerError` into exit code 2 without a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedgranger.text import as_flags


class FedGrangerError(ValueError):
    """Base of every error that a user can fix."""


class DataError(FedGrangerError):
    """The data cannot be used as they are."""


class ReadingError(DataError):
    """The data cannot be read with these options, but perhaps with others.

    Attributes:
        proposal: option -> value; of an option that clients may have each for itself, client ->
            value.
    """

    def __init__(self, message: str, proposal: Mapping[str, str | Mapping[str, str]]) -> None:
        """Keep the options that would help beside the message."""
        super().__init__(message)
        self.proposal = proposal

    @classmethod
    def proposing(cls, fact: str, proposal: Mapping[str, str]) -> ReadingError:
        """What is wrong, and the options that would help."""
        return cls(f"{fact}; pass {as_flags(proposal)}", proposal)


class ConfigError(FedGrangerError):
    """An option is unknown or has a value that cannot work."""


class ModelError(FedGrangerError):
    """A client's local model cannot be identified or is not valid."""


class UnstableRecursionError(FedGrangerError):
    """The learner diverges with these step sizes."""


class InferenceError(FedGrangerError):
    """The edges cannot be tested with these data.

    Attributes:
        client: the one whose states are the reason, when it is one alone.
    """

    def __init__(self, message: str, client: str | None = None) -> None:
        """Keep the client beside the message."""
        super().__init__(message)
        self.client = client


class RunError(FedGrangerError):
    """A run folder cannot be read, written or resumed."""


class ConvergenceWarning(UserWarning):
    """Training stopped before it converged."""


class InferenceWarning(UserWarning):
    """The edge tests are doubtful or were not possible."""


class StabilityWarning(UserWarning):
    """The step sizes are not proven stable."""
