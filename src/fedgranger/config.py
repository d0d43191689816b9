"""`RunConfig`: every option of a fit, by subject, each declared once."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedgranger.edge_test_kinds import EdgeTestOptions
from fedgranger.errors import ConfigError
from fedgranger.learning_options import (
    AUTO,
    Auto,
    LocalModelOptions,
    NetworkOptions,
    PriorOptions,
    TrainingOptions,
)
from fedgranger.option_fields import choice, number, whole
from fedgranger.option_sets import Options

if TYPE_CHECKING:
    from fedgranger.privacy.terms import PrivacyTerms

NEIGHBOURS = ("event", "window", "record")
"""What two records that must be hard to tell apart differ in."""


@dataclass(frozen=True)
class PrivacyOptions(Options):
    """How much a run may tell about single measurements, and to whom."""

    subject = "privacy"
    privacy: str = choice(
        "none",
        ("none", "to-server", "to-clients"),
        'whom the noise protects against. "to-server": every client adds it to what it sends, '
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
        NEIGHBOURS,
        "what must stay hidden: what one client measured at one time step (event), in "
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

    def check_steps(self, num_steps: int) -> None:
        """Refuse lags for which the record is far too short, before any work is done."""
        name = "max_lags" if self.lags == "auto" else "lags"
        lags, allowed = getattr(self, name), num_steps // 2
        if self.test != "none" and lags > max(allowed, type(self).max_lags):
            raise ConfigError(
                f"{name} is {lags}, but the clients share only {num_steps} time steps; it can be "
                f"{allowed} at most, and a tenth of that is a better choice"
            )

    def round_steps(self, num_pairs: int) -> int:
        """Time steps per round of a record with so many pairs of steps.

        Raises:
            ConfigError: the record has fewer than were asked for.
        """
        if self.window == "full":
            return max(num_pairs, 1)
        if self.window > num_pairs:
            raise ConfigError(
                f"window is {self.window} but there are only {num_pairs} steps; use a smaller one"
            )
        return self.window

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
        if self.weighting == "regime" and self.regime_start == "auto" and needs_steady:
            raise ConfigError(
                "weighting='regime' with test='asymptotic' or uncertainty needs regime_start, a "
                "time of the data: 'auto' looks for it in the tests of states"
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
                "use another test and uncertainty='none'"
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
    except OSError as error:
        reason = {FileNotFoundError: "there is no such file", IsADirectoryError: "is a folder"}
        problem = reason.get(type(error), f"cannot be read ({error.strerror})")
        raise ConfigError(f"{path}: {problem}; give a TOML file with options") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from None
