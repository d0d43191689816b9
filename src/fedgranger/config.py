"""`RunConfig`: every option of a fit, by subject, each declared once."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tomli_w

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.errors import ConfigError
from fedgranger.option_fields import (
    Options,
    choice,
    flag,
    number,
    special,
    text,
    whole,
)
from fedgranger.periods import Period, read_period

if TYPE_CHECKING:
    from fedgranger.privacy.terms import PrivacyTerms

Auto = Literal["auto"]
AUTO = ("auto",)
Couplings = Literal["all"] | tuple[tuple[str, str], ...]


def _state_dim(name: str, value: Any) -> int | Auto | dict[str, int]:
    parts = (
        {f"{name} of client '{client}'": dim for client, dim in value.items()}
        if isinstance(value, dict)
        else {}
        if value == "auto"
        else {name: value}
    )
    for part, dim in parts.items():
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
            auto = " or 'auto'" if part == name else ""
            raise ConfigError(f"{part} is {dim!r}; it must be a whole number of at least 1{auto}")
    return value


def _parse_state_dim(words: str) -> Any:
    if "=" not in words:
        return _whole_or_text(words)
    pairs = [part.partition("=") for part in words.split(",")]
    return {client.strip(): _whole_or_text(dim.strip()) for client, _, dim in pairs}


def _whole_or_text(words: str) -> int | str:
    try:
        return int(words)
    except ValueError:
        return words


def _couplings(name: str, value: Any) -> Couplings:
    if value == "all":
        return value
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} is {value!r}; it must be 'all' or a list of [cause, effect]")
    pairs = tuple(tuple(pair) if isinstance(pair, list) else pair for pair in value)
    for pair in pairs:
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        if not is_pair or not all(isinstance(name, str) for name in pair) or pair[0] == pair[1]:
            raise ConfigError(
                f"{name} has the entry {pair!r}; each must be [cause, effect], two clients"
            )
    return pairs


def _parse_couplings(words: str) -> Any:
    if words == "all":
        return words
    return [[side.strip() for side in part.split("->")] for part in words.split(",")]


@dataclass(frozen=True)
class LocalModelOptions(Options):
    """How a client finds its states."""

    subject = "local_model"
    state_model: str = choice(
        "auto",
        ("auto", "factor", "ppca", "svd", "paper"),
        "how a client finds its states: auto, factor, ppca, svd or paper",
    )
    state_dim: int | Auto | dict[str, int] = special(
        "auto",
        'states per client: a number, "auto", or a table client -> number, on the command line '
        "client=number,client=number",
        _state_dim,
        _parse_state_dim,
    )
    max_state_dim: int = whole(4, 'largest number of states "auto" may choose', least=1)
    standardise: bool = flag(
        True, "divide every sensor by its standard deviation before identification"
    )
    period: int | str | list[int | str] | Period = special(
        "auto",
        "what repeats and is taken out of every sensor before identification, by each client on "
        'its own data: steps such as 24 or 24,168, durations such as "1 d,7 d" (they need time '
        'stamps), "none", or "auto": day and week, or without time stamps any period, where the '
        "client's own spectrum shows it",
        lambda _, value: read_period(value),
        str,
    )
    season: str = choice(
        "harmonics",
        ("harmonics", "profile"),
        'shape of what repeats: "harmonics" (the first 4 of every period) or "profile" (the mean '
        "of every phase)",
    )

    def state_dim_of(self, client: str) -> int | Auto:
        """Return the option `state_dim` for one client."""
        if isinstance(self.state_dim, dict):
            return self.state_dim.get(client, "auto")
        return self.state_dim


@dataclass(frozen=True)
class TrainingOptions(Options):
    """How FedGC is trained."""

    subject = "training"
    solver: str = choice(
        "auto",
        ("auto", "sgd", "newton", "neural", "none"),
        'of FedGC: "sgd", the paper\'s step-wise descent; "newton": both sides solve exactly in '
        'turn, which reaches the same limit in a few rounds; "neural": recurrent networks on both '
        "sides, which uses the options of networks and none of the others here but couplings; "
        '"auto": newton, unless an option that only sgd has is set; "none": FedGC is not run, the '
        "edges come from the tests alone",
    )
    window: int | Literal["full"] = whole(
        1,
        'time steps per round (1 is the paper\'s loop), or "full" for all data at once; a round of '
        "newton always takes all data",
        least=1,
        words=("full",),
    )
    passes: int = whole(500, "largest number of passes over the data (rounds of newton)", least=1)
    tolerance: float = number(
        1e-2,
        "stop when the estimated relative distance to the limit falls below this; 0 runs all "
        "passes. newton ignores it and always goes to 1e-10",
        least=0,
    )
    local_step_size: float | Auto = number("auto", 'η1, or "auto"', least=0, words=AUTO)
    feedback_step_size: float | Auto = number("auto", 'η2, or "auto"', least=0, words=AUTO)
    server_step_size: float | Auto = number("auto", 'γ, or "auto"', least=0, words=AUTO)
    step_safety: float = number(
        0.5,
        "automatic step sizes use this share of each side's stability budget",
        above=0,
        below=1,
    )
    augmentation_ridge: float = number(1e-3, "λ_θ", least=0)
    granger_ridge: float = number(1e-3, "λ_A", least=0)
    couplings: Couplings = special(
        "all",
        '"all", or the pairs that may be non-zero and are tested: a list of [cause, effect], on '
        "the command line cause->effect,cause->effect",
        _couplings,
        _parse_couplings,
    )
    uncertainty: str = choice(
        "none",
        ("none", "joint", "blockwise"),
        'propagate mean and covariance of the learner along the first pass: "joint", "blockwise" '
        '(no covariance between causes) or "none"',
    )


@dataclass(frozen=True)
class NetworkOptions(Options):
    """Neural training, solver = "neural": recurrent networks at clients and server."""

    subject = "networks"
    transition: str = choice(
        "linear",
        ("linear", "network", "gp"),
        'a client\'s own transition f: "linear" (Kalman filter), "network" (the paper\'s, with an '
        'extended Kalman filter) or "gp" (Gaussian process, likewise)',
    )
    network_passes: int = whole(
        10, "passes over the data in which networks learn; one more only reads", least=1
    )
    batch_steps: int = whole(256, "time steps per round", least=2)
    sequence_steps: int = whole(
        16, "time steps that a network reads in a row, from an empty memory", least=1
    )
    client_hidden_dim: int = whole(32, "size of the memory of a client's network", least=1)
    server_hidden_dim: int = whole(128, "size of the memory of each of the server's rows", least=1)
    client_learning_rate: float = number(1e-4, "of Adam at the clients", above=0)
    server_learning_rate: float = number(1e-2, "of Adam at the server", above=0)
    next_state_weight: float = number(
        10.0,
        "ω: how much the error of the predicted next states counts at the server beside the "
        "paper's loss; 0 is the paper's loss alone, which finds few edges",
        least=0,
    )


@dataclass(frozen=True)
class PriorOptions(Options):
    """Starting values of FedGC, and the seed of all that is drawn."""

    subject = "prior"
    prior: str = text(
        "normal", "family of the starting values: normal, uniform, laplace or student-t"
    )
    prior_df: float = number(5.0, "degrees of freedom of the Student-t prior", least=0)
    augmentation_prior_location: float = number(0.0, "mean of θ⁰")
    augmentation_prior_scale: float = number(
        0.1, "standard deviation of θ⁰, or of the first weights of a client's network", least=0
    )
    granger_prior_location: float = number(0.0, "mean of Â⁰")
    granger_prior_scale: float = number(
        0.1, "standard deviation of Â⁰, or of the first weights of the server's networks", least=0
    )
    seed: int = whole(0, "seed of the prior draws and of shifted clocks", below=2**63)


@dataclass(frozen=True)
class EdgeTestOptions(Options):
    """Which edges are reported."""

    subject = "edge_tests"
    test: str = choice(
        "auto",
        ("auto", *EDGE_TESTS, "none"),
        "which question is put to the clients' states. \"debiased\": does the cause's latent state "
        "drive the effect's, measurement error taken out; \"readings\": do the cause's past states "
        "help to predict the effect beyond its own past, with p-values from copies whose clocks "
        'were shifted; "auto": the first where its model passes every check, else the second; '
        '"nonlinear": is there any linear, quadratic or interacting influence. '
        "\"asymptotic\" tests FedGC's own estimate with its steady-state covariance (the paper's "
        'test, which does not control false edges); "none" does not test',
    )
    alpha: float = number(
        0.05, "an edge is reported when its adjusted p-value is at most this", above=0, below=1
    )
    correction: str = choice(
        "bh", ("bh", "by", "holm", "none"), "for testing many edges: bh, by, holm or none"
    )
    confidence: float = number(0.95, "level of the entries' intervals", above=0, below=1)
    lags: int | Auto = whole(
        "auto",
        'how many lags of the causes are tested, or "auto": by an information criterion '
        "(debiased), or up to the last one at which something arrives (readings)",
        least=1,
        words=AUTO,
    )
    max_lags: int = whole(10, 'largest number "auto" may choose', least=1)
    copies: int = whole(60, "copies with shifted clocks, for all tests but debiased", least=20)
    nonlinear_regression: str = choice(
        "features",
        ("features", "boosting", "network"),
        "what the nonlinear test predicts states with: products and random features by ridge, "
        "gradient-boosted trees, or a small network",
    )
    covariance: str = choice(
        "sandwich",
        ("sandwich", "homoskedastic"),
        '"sandwich", or "homoskedastic" (right only without measurement noise)',
    )
    noise_correction: bool = flag(
        True,
        "take the measurement error of the states out of the debiased estimate. False tests the "
        "states as they are, which is for data whose noise cannot be told from the states: clients "
        "that share a signal can then come out as edges",
    )
    hac: str = choice(
        "model",
        ("model", "newey-west", "andrews"),
        "lags of the sandwich: model, newey-west or andrews",
    )
    weighting: str = choice(
        "none",
        ("none", "ewma", "window", "periodic", "regime"),
        "for data that drift, which time steps count in the latent test: none (all alike), ewma "
        "(less and less back in time), window (the last ones), periodic (those at the same phase "
        "of a cycle as the last one, such as the same hour of the day) or regime (those since the "
        "last change)",
    )
    weighting_span: int = whole(
        0,
        "in steps: half-life of ewma, length of window, period of periodic; of regime the "
        "half-life of what was before the change (0: it does not count)",
    )
    regime_start: str = text(
        "auto",
        'when the present regime began: a time of the data, or "auto": the last change that the '
        "clients' states show",
    )
    time_windows: int = whole(
        0,
        "also follow every edge through so many stretches of the record, each overlapping half of "
        "the next, for 'fedgranger edges RUN --over-time'; 0 does not",
        below=1000,
    )


@dataclass(frozen=True)
class PrivacyOptions(Options):
    """How much a run may tell about single measurements, and to whom."""

    subject = "privacy"
    privacy: str = choice(
        "none",
        ("none", "to-server", "to-clients"),
        'whose curiosity noise protects from. "to-server": every client adds it to what it sends, '
        'so the server, and whoever it tells, learn little of single measurements; "to-clients": '
        "the server is trusted and adds it to the gradients it sends back, so that a client learns "
        'little of the others; "none": no noise. FedGC\'s rounds are then asked for by name '
        "(solver = 'newton')",
    )
    epsilon: float = number(
        8.0, "ε of the whole run, for one client's data; smaller is more private", above=0
    )
    delta: float = number(1e-5, "δ at which ε is stated", above=0, below=1)
    added_noise: float | Auto = number(
        "auto",
        "standard deviation of the noise on a state, in units of the state's own (of a gradient: "
        'of its clipping bound), or "auto": what ε and δ ask for. A number is used whatever ε is; '
        "the run says what it costs",
        above=0,
        words=AUTO,
    )
    neighbours: str = choice(
        "event",
        ("event", "window", "record"),
        "what must be hard to tell: what one client measured at one time step (event), in "
        "neighbour_steps consecutive ones (window), or at all (record)",
    )
    neighbour_steps: int = whole(10, "time steps of neighbours = 'window'", least=1)
    clip: float | Auto = number(
        "auto",
        "largest norm of a client's state, in units of the state's own standard deviation; larger "
        'ones are shortened. "auto": 1 in 1000 Gaussian states',
        above=0,
        words=AUTO,
    )
    private_rounds: int = whole(
        8, "among how many rounds of FedGC their part of ε is shared", least=1
    )

    @property
    def terms(self) -> PrivacyTerms | None:
        """What the noise must be like; None without privacy."""
        if self.privacy == "none":
            return None
        from fedgranger.privacy.sensitivity import Neighbours  # help does without SciPy
        from fedgranger.privacy.terms import PrivacyTerms

        is_auto = self.added_noise == "auto"
        steps = self.neighbour_steps if self.neighbours == "window" else 1
        return PrivacyTerms(
            self.epsilon if is_auto else None,
            self.delta,
            None if is_auto else float(self.added_noise),
            Neighbours(self.neighbours, steps),
            None if self.clip == "auto" else float(self.clip),
            self.private_rounds,
        )

    @property
    def client_terms(self) -> PrivacyTerms | None:
        """The same where the clients are to add it."""
        return self.terms if self.privacy == "to-server" else None


@dataclass(frozen=True)
class RunConfig(
    PrivacyOptions,
    EdgeTestOptions,
    PriorOptions,
    NetworkOptions,
    TrainingOptions,
    LocalModelOptions,
):
    """Options of `fedgranger.fit`; the same names are keys of a TOML file and CLI options.

    `fedgranger fit --help` and docs/options.md have them all with their defaults.
    """

    def check_together(self) -> None:
        """Check what concerns several options."""
        if self.solver == "neural":
            self._check_neural()
        if self.privacy != "none":
            self._check_private()
        needs_rounds = self.test in ("asymptotic", "none") or self.uncertainty != "none"
        if self.solver == "none" and needs_rounds:
            raise ConfigError(
                "solver='none' runs no FedGC, so test must be 'auto', 'debiased', 'readings' or "
                "'nonlinear' and uncertainty 'none'; choose solver='sgd' or 'newton' for the others"
            )
        needs_steady = self.test == "asymptotic" or self.uncertainty != "none"
        if self.weighting == "regime" and needs_steady:
            raise ConfigError(
                "weighting='regime' is for the tests of states; with test='asymptotic' or "
                "uncertainty use weighting='window' with the length of the regime"
            )
        least = {"none": 0, "regime": 0, "periodic": 2}.get(self.weighting, 1)
        if self.weighting_span < least:
            raise ConfigError(
                f"weighting_span is {self.weighting_span}; it must be a whole number of at least "
                f"{least}"
            )

    def _check_neural(self) -> None:
        """What is derived for linear learners does not hold for networks."""
        if self.privacy != "none":
            raise ConfigError(
                f"privacy='{self.privacy}' has no solver='neural': what a network tells of its "
                "data is not accounted for; use solver='newton' or 'none'"
            )
        if self.test == "asymptotic" or self.uncertainty != "none":
            raise ConfigError(
                "test='asymptotic' and uncertainty follow the linear learner; with solver='neural' "
                "use test='auto', 'debiased', 'readings' or 'none' and uncertainty='none'"
            )

    def _check_private(self) -> None:
        """With noise FedGC's rounds are asked for by name, and are few."""
        if self.solver == "auto" and self.privacy == "to-server":
            object.__setattr__(self, "solver", "none")
        if self.training_solver == "sgd":
            raise ConfigError(
                f"privacy='{self.privacy}' has no step-wise training, and none of its options: "
                "every step would be a release of its own; use solver='newton', a few rounds, or "
                "'none'"
            )
        if self.test == "nonlinear":
            raise ConfigError(
                f"privacy='{self.privacy}' has no nonlinear test: noise in the states of others "
                "would make links through them look direct; choose 'auto', 'debiased' or 'readings'"
            )
        if self.test == "asymptotic" or self.uncertainty != "none":
            raise ConfigError(
                f"privacy='{self.privacy}' has test='auto', 'debiased', 'readings' or 'none' and "
                "no uncertainty along training: both need data that no client would send"
            )

    @property
    def training_solver(self) -> str:
        """The solver that "auto" stands for.

        Step-wise descent needs about 1/(step size x smallest eigenvalue) passes, which recordings
        with slow or collinear sensors never reach; exact solves end in tens of rounds. So newton,
        unless what is asked for is about the steps themselves: their size, window or number, the
        uncertainty along them, or the test of their steady state.
        """
        if self.solver != "auto":
            return self.solver
        about_steps = any(getattr(self, name) != default for name, default in _STEP_OPTIONS.items())
        return "sgd" if about_steps or self.test == "asymptotic" else "newton"

    @property
    def last_round(self) -> int:
        """Number of the last round of exact solves; a private run has few."""
        return self.passes if self.privacy == "none" else self.private_rounds - 1

    @property
    def most_passes(self) -> int:
        """Passes after which training ends for certain."""
        return self.network_passes + 1 if self.solver == "neural" else self.passes

    def to_toml(self) -> str:
        """Return the options as TOML text, in tables by subject."""
        return tomli_w.dumps(self.to_tables())


_STEP_OPTIONS = {
    one.name: one.default
    for one in fields(RunConfig)
    if one.name.endswith("step_size")
    or one.name in ("window", "passes", "tolerance", "step_safety", "uncertainty")
}
"""Options that step-wise descent alone has, and their defaults."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a bad file is one sentence."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from None
