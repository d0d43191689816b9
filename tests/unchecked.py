"""Compute at full speed in the tests' own process."""

from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def unchecked():
    """Without the tests' run-time type checks, for thousands of short calls.

    A process of its own would have none either, but takes two seconds to import everything.
    """
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
