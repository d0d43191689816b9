"""What a run says of its edge tests: every key of `inference` in the manifest, and of `facts`."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from fedgranger.typed_facts import Facts


class Traits(Facts):
    """What in a client's record may mislead a test; without kinds there may be no numbers."""

    kinds: list[str] = field(default_factory=list)
    peak_share: float | None = None
    peak_period: float | None = None
    peak_p: float | None = None
    unit_root: float | None = None
    level_p: float | None = None
    spread_p: float | None = None
    spread_ratio: float | None = None
    kurtosis: float | None = None
    burst_autocorrelation: float | None = None


class QuantileFacts(Facts):
    """Quantiles of the copies' p-values where uniform ones have these levels, with their band."""

    level: list[float]
    observed: list[float]
    low: list[float]
    high: list[float]


class AuditFacts(Facts):
    """What a test found on copies with shifted clocks."""

    test: str
    copies: int
    refused: int
    rate: list[float | None]
    rate_01: list[float | None]
    band: list[float]
    is_inside: bool
    by_effect: dict[str, list[float | None]]
    by_cause: dict[str, list[float | None]]
    quantiles: QuantileFacts | None = None
    clients: dict[str, Traits] | None = None
    unsearched: list[str] | None = None


class ChangeFacts(Facts):
    """One thing of one client that changes over the record, and around when."""

    client: str
    what: str
    p_value: float
    time: str


class DriftFacts(Facts):
    """What changes over the record, at which level, among how many tests."""

    num_tests: int
    level: float
    changes: list[ChangeFacts]


class GapFacts(Facts):
    """What long gaps cost."""

    rows: int
    rows_left_out: int
    longest_gap: int
    rows_off: dict[str, int]
    clients_left_out: list[str]


class LateArrival(Facts):
    """Something of a cause arrives later than the lags of the test."""

    cause: str
    effect: str
    steps: int
    p_value: float


class StabilityFacts(Facts):
    """How fast one row of FedGC's recursion forgets (`uncertainty/stability.py`)."""

    server: float
    client: float
    joint: float
    mean_square: float
    largest_factor: float
    time_constant: float


class SensorInnovation(Facts):
    """One innovation s.d. of a client in the units of the sensor that shows it best."""

    sensor: str
    innovation: float
    is_change: bool


class ResponseFacts(Facts):
    """How an edge's effect follows its cause, step by step, with a band.

    `peak` is the step at which it is largest, `gone` the one after which it stays small (None: not
    within the curve), `delay` the lag at which most of what was tested arrives.
    """

    value: list[float]
    low: list[float]
    high: list[float]
    peak: int
    gone: int | None
    variance_share: float | None = None
    r2_gained: float | None = None
    delay: int | None = None
    cause_sensor: str | None = None
    effect_sensor: str | None = None
    is_change: list[bool] | None = None
    cause_sensors: list[Any] | None = None
    effect_sensors: list[Any] | None = None
    sentence: str | None = None


class CurveFacts(Facts):
    """How much one state of the effect changes by where one of the cause is, with a band."""

    cause_state: int
    effect_state: int
    at: list[float]
    value: list[float]
    low: list[float]
    high: list[float]


class InferenceFacts(Facts):
    """Which test was made, why, and what its checks gave.

    Where none was made there are only `test`, `warnings` and the `reason`.
    """

    test: str = ""
    reason: str | None = None
    test_reason: str | None = None
    null: str | None = None
    alpha: float | None = None
    correction: str | None = None
    confidence: float = 0.95
    lags: int = 1
    covariance: str | None = None
    hac: str | None = None
    hac_lag: int | None = None
    df_denominator: float | None = None
    num_pairs: int | None = None
    mean: list[float] | None = None
    constant: list[float] | None = None
    effective_pairs: float | None = None
    effective_samples: dict[str, float] | None = None
    spectral_radius: float | None = None
    condition: float | None = None
    portmanteau: dict[str, float] | None = None
    unit_root: dict[str, float] | None = None
    stability: dict[str, StabilityFacts] | None = None
    noise_share: float | None = None
    noise_from_lags: dict[str, float | None] | None = None
    lag_criterion: dict[str, float] | None = None
    late_arrivals: list[LateArrival] | None = None
    own_lags: dict[str, int] | None = None
    noise_hides: dict[str, float] | None = None
    warnings: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    gaps: GapFacts | None = None
    drift: DriftFacts | None = None
    detectable_strength: dict[str, float] = field(default_factory=dict)
    positive_control: dict[str, float] | None = None
    innovation_cov: dict[str, list[list[float]]] | None = None
    innovation_sensor: dict[str, SensorInnovation] | None = None
    audit: AuditFacts | None = None
    extrapolated: list[str] | None = None
    regression: str | None = None
    kinds: dict[str, dict[str, float]] | None = None
    kinds_found: dict[str, list[str]] | None = None
    third_clients: dict[str, str] | None = None
    curves: dict[str, CurveFacts] | None = None
    responses: dict[str, ResponseFacts] | None = None
    sensor_responses: dict[str, ResponseFacts] | None = None
    beside: InferenceFacts | None = None
