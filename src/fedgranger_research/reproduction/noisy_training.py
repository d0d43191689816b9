r"""The paper's loop with Gaussian noise on its messages, and what the theory says of it.

Up go \(h_c + n_c\) and \(h_a + n_a\), down comes \(g_s + n_g\); a client's own copies stay clean.
The system is that of the other figures, two clients of which the first drives the second, measured
with the base noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, Float

from fedgranger.client.augment import ClientWindow
from fedgranger.client.params import known_models
from fedgranger.config import RunConfig
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.messages import ClientMessage, ServerMessage
from fedgranger.rounds import RoundParams, RoundState, learn, send
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.row_inputs import single_row
from fedgranger.runtime.setup import Setup, initial_state, set_up
from fedgranger.server.granger import answer
from fedgranger.uncertainty.inputs import Row
from fedgranger.uncertainty.message_noise import message_covs, white_noise
from fedgranger.uncertainty.steady_state import cov_given_data, solve_steady_state
from fedgranger_research.reproduction.regimes import Regime
from fedgranger_research.reproduction.system import STATE_DIM, paired_system

DIRECTIONS = ("up", "down")
EFFECT, CAUSE = 1, 0
"""Of the two clients, in their order."""


class NoiseSizes(NamedTuple):
    """Standard deviations of the noise on messages up and down; any shape, the same for both."""

    up: Float[Array, "*sizes"]
    down: Float[Array, "*sizes"]


@dataclass(frozen=True)
class NoisyTraining:
    """One data set, trained over once with noise of several sizes in either direction.

    Attributes:
        seed: of the system, its data, the start of the parameters and the noise.
        noise_sds: σ on every number of a message.
        num_rounds: training steps.
        num_draws: how many times the noise is drawn.
    """

    seed: int
    noise_sds: tuple[float, ...]
    num_rounds: int = 5001
    num_draws: int = 32

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"noisy-training-{self.seed:03d}"

    @property
    def work(self) -> int:
        """How long it takes, in some unit."""
        return 40 * self.num_rounds

    def key(self) -> dict[str, Any]:
        """Everything the outcome depends on."""
        return asdict(self)

    def run(self, report: Callable[[str, int, int], None] = lambda *_: None) -> pd.DataFrame:
        r"""Train with all draws, and solve the steady state.

        Returns:
            Columns seed, direction, noise_sd, quantity, value: of the block Â21 and of client 2

            - theory: `granger_cov` tr Σ_A21 in the steady state, `trained_granger_cov` after these
              rounds, `given_granger_cov` over the messages' noise alone, `augmentation_cov`
              tr Σ_θ2, `state_cov` tr Σ_h2, `gradient_cov` tr Var(g_2), `limit_error`
              \(\|\hat A_{21}^* - A_{21}\|_F\);
            - over draws of the messages' noise: `drawn_granger_cov` trace of Â21's covariance at
              the end, `granger_error` mean of \(\|\hat A_{21} - A_{21}\|_F\).
        """
        cells = [(way, sd) for way in DIRECTIONS for sd in (0.0, *self.noise_sds)]
        with jax.enable_x64(True):
            setup, config, truth = prepare(self.seed, self.num_rounds)
            sizes = NoiseSizes(
                *(
                    jnp.array([sd if way == name else 0.0 for way, sd in cells])
                    for name in DIRECTIONS
                )
            )
            windows = stack_windows(setup, 0, setup.num_rounds)
            ends = block_21(
                train_with_noise(setup, config, windows, sizes, self.num_draws, self.seed)
            )
            row = single_row(setup, config, EFFECT)
            block = truth.block(setup.names[EFFECT], setup.names[CAUSE])
            rows = []
            for k, (way, sd) in enumerate(cells):
                found = _theory(row, block, way, sd) | _drawn(ends[k], block)
                rows += [(self.seed, way, sd, name, value) for name, value in found.items()]
                report("noisy training", k + 1, len(cells))
        return pd.DataFrame(rows, columns=["seed", "direction", "noise_sd", "quantity", "value"])


def prepare(seed: int, num_rounds: int) -> tuple[Setup, RunConfig, Truth]:
    """The run of the other figures' base regime on measured data, and the truth."""
    base = Regime()
    system = paired_system(base.num_clients, base.sensor_dim, base.noise_var, seed)
    panel, _ = simulate(num_steps=num_rounds + 1, seed=seed, system=system)
    local, feedback, server = base.step_sizes or ("auto", "auto", "auto")
    config = RunConfig(
        local_step_size=local,
        feedback_step_size=feedback,
        server_step_size=server,
        augmentation_prior_scale=float(np.sqrt(base.augmentation_prior_var)),
        granger_prior_scale=float(np.sqrt(base.granger_prior_var)),
        seed=seed,
    )
    return set_up(panel, config, known_models(system)), config, system


def train_with_noise(
    setup: Setup,
    config: RunConfig,
    windows: ClientWindow,
    sizes: NoiseSizes,
    num_draws: int,
    seed: int,
) -> RoundState:
    """Parameters after these rounds, for noise of every size and every draw (two leading axes).

    All sizes share the draws, so that curves over them are smooth.
    """
    first, shape = initial_state(setup, config), (len(sizes.up), num_draws)
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape)), first)
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return _run(setup.params, state, windows, sizes, key)


def block_21(state: RoundState) -> Float[np.ndarray, "size draw state cause"]:
    """Â21 of all sizes and draws."""
    rows = np.asarray(state.server.granger_row)[:, :, EFFECT]
    return rows[..., STATE_DIM * CAUSE : STATE_DIM * (CAUSE + 1)]


@jax.jit
def _run(
    params: RoundParams, state: RoundState, windows: ClientWindow, sizes: NoiseSizes, key: Array
) -> RoundState:
    num_draws = state.server.granger_row.shape[1]
    shape = (num_draws, *windows.filtered_states.shape[1:])

    def one(
        now: RoundState, up: Array, down: Array, drawn: tuple[Array, ...], window: ClientWindow
    ) -> RoundState:
        n_c, n_a, n_g = drawn
        clean = send(now.clients, window)
        message = ClientMessage(
            clean.filtered_states + up * n_c, clean.augmented_states + up * n_a, clean.is_observed
        )
        server, reply, _ = answer(params.server, now.server, message)
        noisy = ServerMessage(reply.gradients + down * n_g)
        clients, _ = learn(params.clients, now.clients, window, noisy)
        return RoundState(clients, server)

    of_draws = jax.vmap(one, in_axes=(0, None, None, 0, None))
    of_sizes = jax.vmap(of_draws, in_axes=(0, 0, 0, None, None))

    def step(
        carry: tuple[RoundState, Array], window: ClientWindow
    ) -> tuple[tuple[RoundState, Array], None]:
        now, key = carry
        key, *own = jax.random.split(key, 4)
        drawn = tuple(jax.random.normal(k, shape) for k in own)
        return (of_sizes(now, sizes.up, sizes.down, drawn, window), key), None

    return lax.scan(step, (state, key), windows)[0][0]


def _theory(row: Row, block: np.ndarray, way: str, sd: float) -> dict[str, float]:
    noise = white_noise(row.params, **{way: sd})
    state = solve_steady_state(row.params, row.windows, client="client2", message_noise=noise)
    split = state.augmentation.size
    given = cov_given_data(row.params, row.windows, state, noise, client="client2")
    messages = message_covs(row.params, row.windows, noise, state.granger, state.cov)
    return {
        "granger_cov": float(np.trace(state.granger_cov())),
        "trained_granger_cov": float(np.trace(state.granger_cov(trained=True))),
        "given_granger_cov": float(np.trace(given[split:, split:])),
        "augmentation_cov": float(np.trace(state.cov[:split, :split])),
        "state_cov": float(np.trace(messages.state_cov)),
        "gradient_cov": float(np.trace(messages.gradient_cov)),
        "limit_error": float(np.linalg.norm(state.granger - block)),
    }


def _drawn(ends: Float[np.ndarray, "draw p q"], block: np.ndarray) -> dict[str, float]:
    errors = np.linalg.norm(ends - block, axis=(1, 2))
    return {
        "drawn_granger_cov": float(ends.var(axis=0, ddof=1).sum()),
        "granger_error": float(errors.mean()),
    }
