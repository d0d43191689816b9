"""Types of the keywords of `fg.fit`; made by `python docs/write_options.py`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict


class ReadingKeywords(TypedDict, total=False):
    """How data are read: `PanelOptions`; docs/options.md says what each does."""

    time_column: str
    delimiter: str
    decimal: str
    thousands: str
    encoding: str
    skip_rows: int | str
    unit_rows: int | str
    missing_text: str | Iterable[str]
    sheet: str
    tag_column: str
    value_column: str
    date_format: str
    time_zone: str
    unordered: Literal["error", "sort"]
    repeated: Literal["error", "first", "last", "mean"]
    leave_out: str | Iterable[str]
    align_tolerance: str | timedelta
    resample: str | timedelta
    resample_rule: Literal["mean", "last"]
    missing: Literal["error", "mask"]
    constant: Literal["error", "drop", "keep"]
    difference: str | Iterable[str]
    suspect: Literal["error", "keep"]
    partition: str | None
    map: str | Iterable[str]


class FitKeywords(ReadingKeywords, total=False):
    """Those, and options of the run: `RunConfig`."""

    state_model: Literal["auto", "factor", "ppca", "svd", "paper"]
    state_dim: int | Literal["auto"] | Mapping[str, int]
    max_state_dim: int
    standardise: bool
    period: int | str | timedelta | Iterable[int | str | timedelta]
    season: Literal["harmonics", "profile"]
    solver: Literal["auto", "sgd", "newton", "neural", "none"]
    window: int | Literal["full"]
    passes: int
    tolerance: float
    local_step_size: float | Literal["auto"]
    feedback_step_size: float | Literal["auto"]
    server_step_size: float | Literal["auto"]
    step_safety: float
    augmentation_ridge: float
    granger_ridge: float
    couplings: Literal["all"] | Sequence[Sequence[str]]
    uncertainty: Literal["none", "joint", "blockwise"]
    transition: Literal["linear", "network", "gp"]
    network_passes: int
    batch_steps: int
    sequence_steps: int
    client_hidden_dim: int
    server_hidden_dim: int
    client_learning_rate: float
    server_learning_rate: float
    next_state_weight: float
    prior: str
    prior_df: float
    augmentation_prior_location: float
    augmentation_prior_scale: float
    granger_prior_location: float
    granger_prior_scale: float
    seed: int
    test: Literal["auto", "debiased", "readings", "nonlinear", "asymptotic", "none"]
    alpha: float
    correction: Literal["bh", "by", "holm", "none"]
    confidence: float
    lags: int | Literal["auto"]
    max_lags: int
    copies: int
    nonlinear_regression: Literal["features", "boosting", "network"]
    covariance: Literal["sandwich", "homoskedastic"]
    noise_correction: bool
    hac: Literal["model", "newey-west", "andrews"]
    weighting: Literal["none", "ewma", "window", "periodic", "regime"]
    weighting_span: int
    regime_start: str
    time_windows: int
    privacy: Literal["none", "to-server", "to-clients"]
    epsilon: float
    delta: float
    added_noise: float | Literal["auto"]
    neighbours: Literal["event", "window", "record"]
    neighbour_steps: int
    clip: float | Literal["auto"]
    private_rounds: int
