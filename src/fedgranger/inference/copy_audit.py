"""Run a test on copies with shifted clocks, and say whether its p-values can be trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy import stats
from threadpoolctl import threadpool_limits

from fedgranger.disk import append_line
from fedgranger.errors import InferenceError
from fedgranger.tested_facts import AuditFacts, QuantileFacts

BAND = (0.03, 0.08)
"""Share of copies at 5 % within which a test's own p-values are believed, apart from chance."""
MOST_REFUSED = 0.1
"""Share of copies on which a test may be impossible."""
LEVELS = (
    *(0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2),
    *(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
)
"""Where the copies' p-values are compared with uniform ones, for a quantile plot."""
Report = Callable[[str, int, int], None]


class PairTests(NamedTuple):
    """One test per ordered pair: W/k, k and p by the test's own law; NaN where there is none."""

    statistic: Float[np.ndarray, "effect cause"]
    df: Float[np.ndarray, "effect cause"]
    p_value: Float[np.ndarray, "effect cause"]


Made = TypeVar("Made", bound=tuple)


class Audit(NamedTuple):
    """What a test found on the data and on copies in which no link is true.

    Attributes:
        found: on the data.
        statistics: W/k of the copies, as if with the data's k.
        p_values: the test's own p-values on the copies.
        refused: copies on which the test could not be made.
    """

    test: str
    names: tuple[str, ...]
    found: PairTests
    statistics: Float[np.ndarray, "copy effect cause"]
    p_values: Float[np.ndarray, "copy effect cause"]
    refused: int

    def rate(self, level: float = 0.05) -> tuple[float, float]:
        """Share of the copies' tests rejected, and its Monte Carlo error (by copy)."""
        return _share(self.p_values, level)

    @property
    def is_inside(self) -> bool:
        """Whether the share at 5 % lies in its band, give or take two Monte Carlo errors."""
        rate, error = self.rate()
        return self.is_safe and bool(BAND[0] - 2 * error <= rate)

    @property
    def is_safe(self) -> bool:
        """Whether it finds no more than its band; calibration takes care of a cautious test."""
        rate, error = self.rate()
        enough = self.refused <= len(self.p_values) * MOST_REFUSED
        return bool(enough and rate <= BAND[1] + 2 * error)


def run_copies(
    test: Callable[[np.ndarray], Made],
    made: type[Made],
    shifts: Int[np.ndarray, "copy client"],
    report: Report,
    record: Path | None = None,
    key: str = "",
    what: str = "shifted clocks",
) -> list[Made | None]:
    """Test every shifted copy, on all cores; None where that was refused.

    Args:
        test: of one row of `shifts`.
        made: the named tuple of arrays that it gives; its fields belong to the key.
        shifts: of every client's clock in every copy.
        report: called with (what, done, total).
        record: a file that keeps finished copies, for an interrupted run to go on from.
        key: what the record must have been made with.
        what: word for the report, where the rows are something else than shifts of copies.
    """
    key = f"{key} {' '.join(getattr(made, '_fields', ()))}"
    found = _read(record, key, made, len(shifts))
    missing = [copy for copy in range(len(shifts)) if copy not in found]

    def work(copy: int) -> tuple[int, Made | None]:
        try:
            return copy, test(shifts[copy])
        except InferenceError:
            return copy, None

    report(what, len(found), len(shifts))
    # a limit on OpenMP's threads holds for the thread that sets it, so every worker sets its own
    workers, one_each = max(os.cpu_count() or 1, 1), (1, "openmp")
    with ThreadPoolExecutor(workers, "copies", threadpool_limits, one_each) as pool:
        try:
            for copy, tests in pool.map(work, missing):
                found[copy] = tests
                _write(record, key, copy, tests)
                report(what, len(found), len(shifts))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[copy] for copy in range(len(shifts))]


def collect_audit(
    name: str, names: tuple[str, ...], tests: PairTests, found: list[PairTests | None]
) -> Audit:
    """What a test gave on the data and on copies, NaN where a copy was refused."""
    missing = np.full(tests.statistic.shape, np.nan)
    return Audit(
        name,
        names,
        tests,
        np.stack([missing if copy is None else copy.statistic for copy in found]),
        np.stack([missing if copy is None else copy.p_value for copy in found]),
        sum(copy is None for copy in found),
    )


def audit_facts(audit: Audit) -> AuditFacts:
    """Plain values for the manifest: rates with their errors, worst clients first."""
    sides = {}
    for side, axis in (("effect", 1), ("cause", 2)):
        shares = [_share(np.take(audit.p_values, m, axis), 0.05) for m in range(len(audit.names))]
        order = sorted(range(len(shares)), key=lambda m: -shares[m][0])
        sides[side] = {audit.names[m]: _rounded(shares[m]) for m in order}
    return AuditFacts(
        test=audit.test,
        copies=len(audit.p_values),
        refused=audit.refused,
        rate=_rounded(audit.rate()),
        rate_01=_rounded(audit.rate(0.01)),
        band=list(BAND),
        is_inside=audit.is_inside,
        by_effect=sides["effect"],
        by_cause=sides["cause"],
        quantiles=_quantiles(audit.p_values),
    )


def _quantiles(p: Float[np.ndarray, "copy effect cause"]) -> QuantileFacts:
    r"""Quantiles of the copies' p-values where uniform ones have the levels u, with a 95 % band.

    The k-th smallest of n independent uniform p-values is Beta(k, n + 1 − k). Tests of one copy
    share data, so n is divided by how much more the share at 5 % varies between copies than it
    would between independent tests.
    """
    known = p[np.isfinite(p)]
    n = len(known)
    rate, error = _share(p, 0.05)
    if n < 1 / LEVELS[-1] or not np.isfinite(error):
        return QuantileFacts(level=[], observed=[], low=[], high=[])
    independent = rate * (1 - rate) / n
    effective = n / max(1.0, error**2 / independent if independent > 0 else 1.0)
    level = np.array([u for u in LEVELS if u * (n + 1) >= 1])
    k = level * (effective + 1)
    band = stats.beta.ppf([[0.025], [0.975]], k, effective + 1 - k)
    observed = np.quantile(known, level, method="weibull")
    columns = (level, observed, *band)
    plain = ([float(f"{value:.4g}") for value in column] for column in columns)
    return QuantileFacts(**dict(zip(("level", "observed", "low", "high"), plain, strict=True)))


def _share(p: Float[np.ndarray, "copy ..."], level: float) -> tuple[float, float]:
    known = np.isfinite(p)
    axes = tuple(range(1, p.ndim))
    count = known.sum(axis=axes)
    per_copy = (np.where(known, p, 1.0) < level).sum(axis=axes)[count > 0] / count[count > 0]
    if len(per_copy) < 2:
        return float("nan"), float("nan")
    return float(per_copy.mean()), float(per_copy.std(ddof=1) / np.sqrt(len(per_copy)))


def _rounded(pair: tuple[float, float]) -> list[float | None]:
    return [round(value, 4) if np.isfinite(value) else None for value in pair]


def _read(
    record: Path | None, key: str, made: type[Made], num_copies: int
) -> dict[int, Made | None]:
    out: dict[int, Made | None] = {}
    if record is None or not record.is_file():
        return out
    for line in record.read_text("utf-8").splitlines():
        try:
            entry: Mapping[str, Any] = json.loads(line)
            if entry["key"] == key and 0 <= entry["copy"] < num_copies:
                tests = entry["tests"]
                parts = None if tests is None else [np.array(part, dtype=float) for part in tests]
                out[entry["copy"]] = None if parts is None else made(*parts)
        except (ValueError, KeyError, TypeError):
            continue  # a torn last line
    return out


def _write(record: Path | None, key: str, copy: int, tests: tuple[np.ndarray, ...] | None) -> None:
    if record is None:
        return
    parts = None if tests is None else [part.tolist() for part in tests]
    append_line(record, json.dumps({"key": key, "copy": copy, "tests": parts}))
