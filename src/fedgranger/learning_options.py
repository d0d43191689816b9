"""Options of a fit about local models, training, networks and starting values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedgranger.errors import ConfigError
from fedgranger.option_fields import choice, flag, number, special, text, whole
from fedgranger.option_sets import Options
from fedgranger.periods import Period, read_period
from fedgranger.text import listed

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
    if isinstance(value, str) and value == "all":
        return value
    given = listed(value)
    if given is None:
        raise ConfigError(f"{name} is {value!r}; it must be 'all' or a list of [cause, effect]")
    pairs = tuple(tuple(pair) if isinstance(pair, list) else pair for pair in given)
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
        "sides, with options of their own (networks): of the options here only couplings counts; "
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
        10,
        "passes over the data in which the networks learn; the result comes from one more pass, in "
        "which they do not",
        least=1,
    )
    batch_steps: int = whole(256, "time steps per round", least=2)
    sequence_steps: int = whole(
        16,
        "time steps that a network reads one after another before its memory is emptied",
        least=1,
    )
    client_hidden_dim: int = whole(32, "numbers in the memory of a client's network", least=1)
    server_hidden_dim: int = whole(
        128, "numbers in the memory of the server's network for each client", least=1
    )
    client_learning_rate: float = number(1e-4, "of Adam at the clients", above=0)
    server_learning_rate: float = number(1e-2, "of Adam at the server", above=0)
    next_state_weight: float = number(
        10.0,
        "ω: how much the error of the predicted next states counts at the server in "
        "addition to the paper's loss; 0 is the paper's loss alone, which ranked edges no better "
        "than chance",
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
