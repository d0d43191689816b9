"""`RunConfig`: every option of a fit, checked once."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import tomli_w

from fedgranger.errors import ConfigError
from fedgranger.periods import Period, read_period

__all__ = ["RunConfig", "check_choice", "read_toml", "unknown_key"]

Auto = Literal["auto"]
TESTS = ("auto", "debiased", "readings", "asymptotic", "none")


@dataclass(frozen=True)
class RunConfig:
    """Options of `fedgranger.fit`; the same names are keys of a TOML file and CLI options.

    Attributes:
        state_model: how a client finds its states: auto, factor, ppca, svd or paper.
        state_dim: states per client: a number, "auto", or a table client -> number, on the
            command line client=number,client=number.
        max_state_dim: largest number of states "auto" may choose.
        standardise: divide every sensor by its standard deviation before identification.
        period: what repeats and is taken out of every sensor before identification, by each client
            on its own data: steps such as 24 or 24,168, durations such as "1 d,7 d" (they need
            time stamps), "none", or "auto": day and week, or without time stamps any period, where
            the client's own spectrum shows it.
        season: shape of what repeats: "harmonics" (the first 4 of every period) or "profile" (the
            mean of every phase).
        solver: of FedGC: "sgd", the paper's step-wise descent; "newton": both sides solve exactly
            in turn, which reaches the same limit in a few rounds; "auto": newton, unless an option
            that only sgd has is set (see `training_solver`); "none": FedGC is not run, the edges
            come from the tests alone.
        window: time steps per round (1 is the paper's loop), or "full" for all data at once; a
            round of newton always takes all data.
        passes: largest number of passes over the data (rounds of newton).
        tolerance: stop when the estimated relative distance to the limit falls below this;
            0 runs all passes. newton ignores it and always goes to 1e-10.
        local_step_size: η1, or "auto".
        feedback_step_size: η2, or "auto".
        server_step_size: γ, or "auto".
        step_safety: automatic step sizes use this share of each side's stability budget.
        augmentation_ridge: λ_θ.
        granger_ridge: λ_A.
        couplings: "all", or the pairs that may be non-zero and are tested: a list of
            [cause, effect], on the command line cause->effect,cause->effect.
        prior: family of the starting values: normal, uniform, laplace or student-t.
        prior_df: degrees of freedom of the Student-t prior.
        augmentation_prior_location: mean of θ⁰.
        augmentation_prior_scale: standard deviation of θ⁰.
        granger_prior_location: mean of Â⁰.
        granger_prior_scale: standard deviation of Â⁰.
        seed: seed of the prior draws.
        test: which question is put to the clients' states. "debiased": does the cause's latent
            state drive the effect's, measurement error taken out; "readings": do the cause's past
            states help to predict the effect beyond its own past, with p-values from copies whose
            clocks were shifted; "auto": the first where its model passes every check, else the
            second. "asymptotic" tests
            FedGC's own estimate with its steady-state covariance (the paper's test, which does not
            control false edges); "none" does not test.
        alpha: an edge is reported when its adjusted p-value is at most this.
        correction: for testing many edges: bh, by, holm or none.
        confidence: level of the entries' intervals.
        lags: how many lags of the causes are tested, or "auto": by an information criterion
            (debiased), or up to the last one at which something arrives (readings).
        max_lags: largest number "auto" may choose.
        copies: copies with shifted clocks, for readings and auto.
        covariance: "sandwich", or "homoskedastic" (right only without measurement noise).
        noise_correction: take the measurement error of the states out of the debiased estimate.
            False tests the states as they are, which is for data whose noise cannot be told from
            the states: clients that share a signal can then come out as edges.
        hac: lags of the sandwich: model, newey-west or andrews.
        weighting: weights of time steps in the tests: none, ewma or window.
        weighting_span: half-life of ewma, or length of window, in steps.
        uncertainty: propagate mean and covariance of the learner along the first pass: "joint",
            "blockwise" (no covariance between causes) or "none".
    """

    state_model: str = "auto"
    state_dim: int | Auto | dict[str, int] = "auto"
    max_state_dim: int = 4
    standardise: bool = True
    period: int | str | list[int | str] | Period = "auto"
    season: str = "harmonics"
    solver: str = "auto"
    window: int | Literal["full"] = 1
    passes: int = 500
    tolerance: float = 1e-2
    local_step_size: float | Auto = "auto"
    feedback_step_size: float | Auto = "auto"
    server_step_size: float | Auto = "auto"
    step_safety: float = 0.5
    augmentation_ridge: float = 1e-3
    granger_ridge: float = 1e-3
    couplings: Literal["all"] | tuple[tuple[str, str], ...] = "all"
    prior: str = "normal"
    prior_df: float = 5.0
    augmentation_prior_location: float = 0.0
    augmentation_prior_scale: float = 0.1
    granger_prior_location: float = 0.0
    granger_prior_scale: float = 0.1
    seed: int = 0
    test: str = "auto"
    alpha: float = 0.05
    correction: str = "bh"
    confidence: float = 0.95
    lags: int | Auto = "auto"
    max_lags: int = 10
    copies: int = 60
    covariance: str = "sandwich"
    noise_correction: bool = True
    hac: str = "model"
    weighting: str = "none"
    weighting_span: int = 0
    uncertainty: str = "none"

    def __post_init__(self) -> None:
        """Check every value; the message names the option, the value and what is allowed."""
        check_choice("state_model", self.state_model, ("auto", "factor", "ppca", "svd", "paper"))
        if isinstance(self.state_dim, dict):
            for client, dim in self.state_dim.items():
                _check_int(f"state_dim of client '{client}'", dim, 1)
        elif self.state_dim != "auto":
            _check_int("state_dim", self.state_dim, 1)
        _check_int("max_state_dim", self.max_state_dim, 1)
        for name in ("standardise", "noise_correction"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be true or false")
        object.__setattr__(self, "period", read_period(self.period))
        check_choice("season", self.season, ("harmonics", "profile"))
        if self.window != "full":
            _check_int("window", self.window, 1)
        _check_int("passes", self.passes, 1)
        _check_int("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise ConfigError(f"seed is {self.seed}; it must be below 2**63")
        if not isinstance(self.prior, str):
            raise ConfigError(f"prior is {self.prior!r}; it must be the name of a family")
        for name in ("local_step_size", "feedback_step_size", "server_step_size"):
            if getattr(self, name) != "auto":
                _check_number(name, getattr(self, name), 0.0)
        for name in (
            "tolerance",
            "augmentation_ridge",
            "granger_ridge",
            "augmentation_prior_scale",
            "granger_prior_scale",
            "prior_df",
        ):
            _check_number(name, getattr(self, name), 0.0)
        for name in ("augmentation_prior_location", "granger_prior_location"):
            _check_number(name, getattr(self, name), -math.inf)
        _check_number("step_safety", self.step_safety, 0.0)
        if not 0 < self.step_safety < 1:
            raise ConfigError(
                f"step_safety is {self.step_safety}; it must lie between 0 and 1 (exclusive)"
            )
        _check_couplings(self.couplings)
        check_choice("solver", self.solver, ("auto", "sgd", "newton", "none"))
        check_choice("test", self.test, TESTS)
        check_choice("uncertainty", self.uncertainty, ("none", "joint", "blockwise"))
        needs_rounds = self.test in ("asymptotic", "none") or self.uncertainty != "none"
        if self.solver == "none" and needs_rounds:
            raise ConfigError(
                "solver='none' runs no FedGC, so test must be 'auto', 'debiased' or 'readings' and "
                "uncertainty 'none'; choose solver='sgd' or 'newton' for the others"
            )
        check_choice("correction", self.correction, ("bh", "by", "holm", "none"))
        check_choice("covariance", self.covariance, ("sandwich", "homoskedastic"))
        check_choice("hac", self.hac, ("model", "newey-west", "andrews"))
        check_choice("weighting", self.weighting, ("none", "ewma", "window"))
        for name in ("alpha", "confidence"):
            _check_number(name, getattr(self, name), 0.0)
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}; it must lie between 0 and 1 (exclusive)"
                )
        if self.lags != "auto":
            _check_int("lags", self.lags, 1)
        _check_int("max_lags", self.max_lags, 1)
        _check_int("copies", self.copies, 20)
        _check_int("weighting_span", self.weighting_span, 0 if self.weighting == "none" else 1)
        for field in fields(self):  # 1 and 1.0 are the same option
            if isinstance(field.default, float) or field.name.endswith("step_size"):
                value = getattr(self, field.name)
                if isinstance(value, int):
                    object.__setattr__(self, field.name, float(value))

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

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build from names and values; an unknown name is an error that names the nearest one."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(unknown_key(key, known))
        values = dict(values)
        if isinstance(values.get("couplings"), list):
            values["couplings"] = tuple(
                tuple(pair) if isinstance(pair, list) else pair for pair in values["couplings"]
            )
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for TOML and JSON."""
        values = asdict(self)
        if self.couplings != "all":
            values["couplings"] = [list(pair) for pair in self.couplings]
        if isinstance(self.period, tuple):
            values["period"] = list(self.period)
        return values

    def to_toml(self) -> str:
        """Return the options as TOML text."""
        return tomli_w.dumps(self.to_mapping())

    def state_dim_of(self, client: str) -> int | Auto:
        """Return the option `state_dim` for one client."""
        if isinstance(self.state_dim, dict):
            return self.state_dim.get(client, "auto")
        return self.state_dim


_STEP_OPTIONS = {
    field.name: field.default
    for field in fields(RunConfig)
    if field.name.endswith("step_size")
    or field.name in ("window", "passes", "tolerance", "step_safety", "uncertainty")
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


def unknown_key(key: str, known: list[str]) -> str:
    """Sentence for an unknown option, with the nearest known one."""
    nearest = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.4)
    hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
    return f"unknown option '{key}'{hint}"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the allowed words, naming the nearest."""
    if value not in allowed:
        nearest = difflib.get_close_matches(str(value).lower(), allowed, n=1, cutoff=0.4)
        hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
        raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(allowed)}{hint}")


def _check_int(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def _check_number(name: str, value: Any, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name} is {value!r}; it must be a finite number")
    if value < least:
        raise ConfigError(f"{name} is {value!r}; it must be at least {least:g}")


def _check_couplings(couplings: Any) -> None:
    if couplings == "all":
        return
    if not isinstance(couplings, tuple):
        raise ConfigError(
            f"couplings is {couplings!r}; it must be 'all' or a list of [cause, effect]"
        )
    for pair in couplings:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not all(isinstance(name, str) for name in pair)
            or pair[0] == pair[1]
        ):
            raise ConfigError(
                f"couplings has the entry {pair!r}; each must be [cause, effect], two clients"
            )
