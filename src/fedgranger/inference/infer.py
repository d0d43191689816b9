"""Choose the test of a run: the latent influence, the readings, or what the data allow."""

from __future__ import annotations

from pathlib import Path

from threadpoolctl import threadpool_limits

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.edges import EdgeInference
from fedgranger.inference.gaps import usable
from fedgranger.inference.latent import fit_latent, latent_tables
from fedgranger.inference.states import StateSource, select_clients
from fedgranger.inference.two_tests import Report, TwoTests
from fedgranger.inference.widen import widen

__all__ = ["infer"]


def infer(
    source: StateSource,
    config: RunConfig,
    report: Report = lambda *_: None,
    record: Path | None = None,
) -> EdgeInference:
    """Estimate, test and check; see `RunConfig` for the options.

    Args:
        source: the clients' states.
        config: the options.
        report: called with (what, done, total).
        record: a file that keeps what shifted copies gave, for an interrupted run to go on from.

    Raises:
        InferenceError: the data do not allow any test, with the reason and a remedy.
    """
    part = usable(source)
    if config.test == "debiased":
        found = _latent_of_most(part.source, config)
    else:
        # Copies use all cores; within one, many small products take longer on several threads.
        with threadpool_limits(1):
            found = _infer(part.source, config, report, record)
    found.facts["warnings"] += part.warnings
    if part.facts:
        found.facts["gaps"] = part.facts
    return widen(found, source, part.reasons)


def _latent_of_most(source: StateSource, config: RunConfig) -> EdgeInference:
    """The latent test, without a client whose states make it impossible for all."""
    try:
        return latent_tables(fit_latent(source, config), config)
    except InferenceError as error:
        if error.client is None or len(source.names) <= 2:
            raise
        kept = [m for m, name in enumerate(source.names) if name != error.client]
        try:
            found = _latent_of_most(select_clients(source, kept), config)
        except InferenceError:
            raise error from None
        found.facts["warnings"].append(
            f"tested without '{error.client}', so the edges of the others are conditional on one "
            f"client fewer: {error}"
        )
        return widen(found, source, {error.client: f"not tested: {error}"})


def _infer(
    source: StateSource, config: RunConfig, report: Report, record: Path | None
) -> EdgeInference:
    tests = TwoTests(source, config, report, record)
    if config.test == "readings":
        return tests.readings("it was asked for")
    latent, doubt = tests.latent()
    try:
        readings = tests.readings(doubt)
    except InferenceError as error:
        if latent is None:
            raise InferenceError(f"{doubt}; and as readings: {error}") from None
        doubt, readings = "", None
    chosen, other = (readings, latent) if doubt else (latent, readings)
    if chosen is None:
        raise RuntimeError("one of the two tests was made")
    chosen.facts["test_reason"] = doubt or "the latent model passes its checks on these data"
    if other is not None:
        chosen.facts["beside"] = other.facts
    return chosen._replace(beside=other)
