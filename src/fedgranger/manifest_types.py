"""The record of a run, `manifest.json`: every key that is read or written is declared here.

`federation/run_record.py` builds it, `RunFolder.finish` writes it and `run_folder.read_manifest`
reads it, that of an older version too (`Manifest.of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Self

from fedgranger.tested_facts import InferenceFacts
from fedgranger.typed_facts import Facts

FORMAT = 2
"""Of manifests. 1, which did not say so: bytes of a run in one process as `up_total`, `down_total`;
of version 0.1.0 without some of the parts."""
OLD_BYTES = {"up_total": "bytes_up", "down_total": "bytes_down"}


class SeasonFacts(Facts):
    """What a client took out of its data because it repeats; between parties only the periods."""

    periods: list[int] = field(default_factory=list)
    kind: str | None = None
    share: float | None = None
    fact: str | None = None


class TreatmentFacts(Facts):
    """Differenced sensors with the directions of counters, and codes for missing samples."""

    differenced: dict[str, int]
    codes: dict[str, float]


class SensorFit(Facts):
    """How well the states explain one sensor; None where nothing was observed."""

    name: str
    explained: float | None
    missing_share: float


class LocalFit(Facts):
    """How well a client's local model fits (`client/quality.py`)."""

    steps: int
    innovation_variance: float | None
    autocorrelation: float | None
    quantiles: list[float | None]
    sensors: list[SensorFit]
    num_sensors: int


class ClientFacts(Facts):
    """One client; in a federation only what it sent is known."""

    state_dim: int = 0
    num_sensors: int | None = None
    state_model: str = ""
    noise_share: float | None = None
    missing_share: float | None = None
    notes: list[str] = field(default_factory=list)
    season: SeasonFacts = field(default_factory=SeasonFacts)
    treatment: TreatmentFacts | None = None
    local_fit: LocalFit | None = None
    units: dict[str, str] | None = None
    hash: str | None = None


class FindingFacts(Facts):
    """One odd thing about one sensor (`data/findings.py`: `Finding`)."""

    kind: str
    client: str
    sensor: str
    rows: int
    first_row: int
    value: float | None
    share: float
    direction: int
    label: str
    sentence: str
    remedy: str


class PeriodFacts(Facts):
    """The common time axis; seconds only where it has time stamps."""

    text: str
    step_seconds: float | None


class DataFacts(Facts):
    """The data and where they come from; between parties a site keeps what reading did to them."""

    hash: str = ""
    num_steps: int = 0
    num_segments: int = 0
    period: PeriodFacts | None = None
    clients: dict[str, ClientFacts] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    findings: list[FindingFacts] | None = None
    reading: dict[str, Any] | None = None

    @property
    def step_seconds(self) -> float | None:
        """Seconds of one step, where they are known."""
        return None if self.period is None else self.period.step_seconds


class TrainingFacts(Facts):
    """How FedGC's rounds went."""

    solver: str = ""
    rounds: int = 0
    status: str = ""
    converged: bool | None = None
    window: int | None = None
    passes: int | None = None
    criterion: str | None = None
    distance: float | None = None
    failed: bool | None = None
    step_sizes: dict[str, dict[str, float]] | None = None
    step_size_reason: str | None = None


class SentFacts(Facts):
    """What one client sent and received.

    In one process these are the bytes of the messages without envelopes, and what of them is for
    what; between parties what really crossed, counted by message.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    once: int | None = None
    edge_tests: int | None = None
    up_per_step: int | None = None
    down_per_step: int | None = None
    messages_up: int | None = None
    messages_down: int | None = None
    refused: int | None = None
    repeated: int | None = None


class NormalFacts(Facts):
    """What the run learned of normal operation, or why not."""

    explained_by: str | None = None
    interval: float | None = None
    monitors: str | None = None
    reason: str | None = None


class ReleaseFacts(Facts):
    """One kind of message with noise: how often it was told, μ of one, ε of all of them."""

    message: str
    times: int
    size: float
    epsilon: float


class ClientPrivacy(Facts):
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


class PrivacyFacts(Facts):
    """What the noise of a run costs; `epsilon` is of the client about whom most was told."""

    direction: str
    neighbours: str
    delta: float
    epsilon: float
    clients: dict[str, ClientPrivacy]


class Manifest(Facts):
    """The whole."""

    format: int = FORMAT
    fedgranger_version: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    runtime: str = ""
    seed: int = 0
    data: DataFacts
    training: TrainingFacts
    bytes: dict[str, SentFacts]
    timings: dict[str, float]
    config: dict[str, Any]
    inference: InferenceFacts
    normal: NormalFacts
    privacy: PrivacyFacts | None = None
    run: str | None = None
    left_out: list[str] | None = None
    command: str | None = None
    files: dict[str, str] | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The record in a mapping: of this format, or an older one, whose parts may be absent."""
        names = ("data", "training", "bytes", "timings", "config", "inference", "normal")
        parts: dict[str, Any] = {name: {} for name in names}
        sent = values.get("bytes", {})
        if values.get("format", 1) < FORMAT:
            sent = {name: _renamed(one, OLD_BYTES) for name, one in sent.items()}
        return super().of({**parts, **values, "bytes": sent, "format": FORMAT})


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}
