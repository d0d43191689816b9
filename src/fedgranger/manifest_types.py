"""What `manifest.json` of a run says: every key that is read or written is declared here.

`NotRequired` marks what not every run has; runs of older versions may lack more.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class SeasonFacts(TypedDict):
    """What a client took out of its data because it repeats."""

    periods: list[int]
    kind: NotRequired[str]
    share: NotRequired[float]
    fact: NotRequired[str]


class ClientFacts(TypedDict):
    """One client; in a federation only what it sent is known."""

    state_dim: int
    num_sensors: NotRequired[int]
    state_model: str
    noise_share: NotRequired[float]
    missing_share: NotRequired[float]
    notes: list[str]
    season: SeasonFacts
    treatment: NotRequired[dict[str, Any]]
    local_fit: NotRequired[dict[str, Any]]
    units: NotRequired[dict[str, str]]
    hash: NotRequired[str]


class ReadingFacts(TypedDict):
    """What reading did to the data, what is odd in them, and the options; not between parties."""

    notes: list[str]
    findings: NotRequired[list[dict[str, Any]]]
    reading: NotRequired[dict[str, Any]]


class DataFacts(ReadingFacts):
    """The data and where they come from."""

    hash: str
    num_steps: int
    num_segments: int
    period: NotRequired[dict[str, Any]]
    clients: dict[str, ClientFacts]


class TrainingFacts(TypedDict):
    """How FedGC's rounds went."""

    solver: str
    rounds: int
    status: str
    converged: NotRequired[bool]
    window: NotRequired[int]
    passes: NotRequired[int]
    criterion: NotRequired[str]
    distance: NotRequired[float | None]
    failed: NotRequired[bool]
    step_sizes: NotRequired[dict[str, dict[str, float]]]
    step_size_reason: NotRequired[str]


class AuditFacts(TypedDict):
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
    quantiles: NotRequired[dict[str, list[float]]]
    clients: NotRequired[dict[str, Any]]
    unsearched: NotRequired[list[str]]


class ChangeFacts(TypedDict):
    """One thing of one client that changes over the record, and around when."""

    client: str
    what: str
    p_value: float
    time: str


class DriftFacts(TypedDict):
    """What changes over the record, at which level, among how many tests."""

    num_tests: int
    level: float
    changes: list[ChangeFacts]


class InferenceFacts(TypedDict):
    """Which test was made, why, and what its checks gave.

    Where none was made there are only `test`, `warnings` and the `reason`.
    """

    test: str
    reason: NotRequired[str]
    test_reason: NotRequired[str]
    null: NotRequired[str]
    alpha: float
    correction: str
    confidence: float
    lags: int
    covariance: NotRequired[str]
    hac: NotRequired[str]
    hac_lag: NotRequired[int]
    df_denominator: NotRequired[float]
    num_pairs: NotRequired[int]
    mean: NotRequired[list[float]]
    constant: NotRequired[list[float]]
    effective_pairs: NotRequired[float]
    effective_samples: NotRequired[dict[str, float]]
    spectral_radius: NotRequired[float]
    condition: NotRequired[float]
    portmanteau: NotRequired[dict[str, float]]
    unit_root: NotRequired[dict[str, float]]
    stability: NotRequired[dict[str, dict[str, float]]]
    noise_share: NotRequired[float]
    noise_from_lags: NotRequired[dict[str, float | None]]
    lag_criterion: NotRequired[dict[str, float]]
    late_arrivals: NotRequired[list[dict[str, Any]]]
    own_lags: NotRequired[dict[str, int]]
    noise_hides: NotRequired[dict[str, float]]
    warnings: list[str]
    reasons: dict[str, str]
    gaps: NotRequired[dict[str, Any]]
    drift: NotRequired[DriftFacts]
    detectable_strength: dict[str, float]
    positive_control: NotRequired[dict[str, float]]
    innovation_cov: NotRequired[dict[str, list[list[float]]]]
    innovation_sensor: NotRequired[dict[str, dict[str, Any]]]
    audit: NotRequired[AuditFacts]
    extrapolated: NotRequired[list[str]]
    regression: NotRequired[str]
    kinds: NotRequired[dict[str, dict[str, float]]]
    kinds_found: NotRequired[dict[str, list[str]]]
    third_clients: NotRequired[dict[str, str]]
    curves: NotRequired[dict[str, dict[str, Any]]]
    responses: NotRequired[dict[str, dict[str, Any]]]
    sensor_responses: NotRequired[dict[str, dict[str, Any]]]
    beside: NotRequired[InferenceFacts]


class NormalFacts(TypedDict, total=False):
    """What the run learned of normal operation, or why not."""

    explained_by: str
    interval: float
    monitors: str
    reason: str


class ReleaseFacts(TypedDict):
    """One kind of message with noise: how often it was told, μ of one, ε of all of them."""

    message: str
    times: int
    size: float
    epsilon: float


class ClientPrivacy(TypedDict):
    """What was told of one client's data.

    Attributes:
        epsilon: ε of all messages together.
        added_noise: standard deviation of the noise on a state in units of the state's own; None
            where states had none.
        clipped_share: share of states that were clipped, as the client told it.
    """

    epsilon: float
    added_noise: float | None
    clipped_share: float
    messages: list[ReleaseFacts]
    not_covered: list[str]


class PrivacyFacts(TypedDict):
    """What the noise of a run costs; `epsilon` is of the client about whom most was told."""

    direction: str
    neighbours: str
    delta: float
    epsilon: float
    clients: dict[str, ClientPrivacy]


class Manifest(TypedDict):
    """The whole."""

    fedgranger_version: str
    versions: dict[str, str]
    created: str
    runtime: str
    seed: int
    data: DataFacts
    training: TrainingFacts
    bytes: dict[str, Any]
    timings: dict[str, float]
    config: dict[str, Any]
    inference: InferenceFacts
    normal: NormalFacts
    privacy: NotRequired[PrivacyFacts]
    run: NotRequired[str]
    left_out: NotRequired[list[str]]
    command: NotRequired[str]
    files: NotRequired[dict[str, str]]
    sha256: NotRequired[str]
