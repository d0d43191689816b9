"""What a client of a federation prepares from its own file, once its site's policy allows it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.client_side import ClientSide, set_up_client, start_shape, with_learner
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import initial_augmentation
from fedgranger.config import RunConfig
from fedgranger.data.align import RegularPanel
from fedgranger.data.common_axis import unused_notes
from fedgranger.data.time_axis import (
    LocalSeries,
    TimeGrid,
    grid_time,
    on_grid,
    period_text,
    range_of,
)
from fedgranger.federation.agreed_options import ClientOptions
from fedgranger.federation.policy import PolicyError
from fedgranger.federation.questions import Questions, Site, question_of
from fedgranger.federation.release_ledger import ReleaseLedger, period_of
from fedgranger.federation.secret import data_hash, draw_start
from fedgranger.privacy.release import Release, SecretNoise, seeded_secret
from fedgranger.text import counted

Start = Callable[[tuple[int, ...]], np.ndarray]
"""θ⁰ by its shape."""
Preparation = Callable[[LocalSeries, TimeGrid, ClientOptions, Start, SecretNoise], ClientSide]


def prepare_party(
    series: LocalSeries,
    grid: TimeGrid,
    options: ClientOptions,
    start: Start,
    noise: SecretNoise | None = None,
) -> ClientSide:
    """Put the data on the common time axis and prepare; filter only for FedGC's rounds."""
    config = options.config
    with jax.enable_x64(True), threadpool_limits(1):  # as in one process, to the last bit
        found = set_up_client(
            on_grid(series, grid),
            grid_time(grid),
            grid.segment_starts,
            config,
            interval=float(grid.interval),
            model=series.model,
            is_filtered=config.solver != "none",
            noise=noise,
        )
        theta = start(start_shape(found.model, config))
        return with_learner(found, config, options.message_steps, theta, noise)


def seeded_preparation(config: RunConfig) -> Preparation:
    """The same with θ⁰ and noise from the run's seed, as in one process: for simulations only."""

    def prepare(
        series: LocalSeries, grid: TimeGrid, options: ClientOptions, *_: Start | SecretNoise
    ) -> ClientSide:
        name = series.client.name
        start = functools.partial(initial_augmentation, name, config=config)
        noise = SecretNoise(seeded_secret(config.seed, name))
        return prepare_party(series, grid, options, start, noise)

    return prepare


def prepare_local(
    regular: RegularPanel, name: str, config: RunConfig, model: LocalModel | None
) -> ClientSide:
    """The same in one process, with filtered states also where there are no rounds."""
    panel, noise = regular.panel, SecretNoise(seeded_secret(config.seed, name))
    found = set_up_client(
        panel[name],
        panel.time,
        panel.segment_starts,
        config,
        interval=regular.interval,
        model=model,
        noise=noise,
    )
    if config.training_solver not in ("newton", "neural"):  # sgd is one compiled loop
        return found
    theta = initial_augmentation(name, start_shape(found.model, config), config)
    return with_learner(found, config, panel.num_steps, theta, noise)


class PermittedClient:
    """A client's data as its runs need them; the policy is asked before anything is computed.

    It is asked again for every run and after every restart.

    Attributes:
        series: its data, within the period that the policy allows.
        data_hash: tells its data, with the model declared for them, from others.
        questions: what it has been asked about them.
        ledger: what was released of them.
        question: name of the last one that was allowed; empty: none.
        prepare: identifies, computes the states and builds the learner.
    """

    def __init__(self, series: LocalSeries, site: Site, prepare: Preparation) -> None:
        self.series, self._site, self.prepare = series, site, prepare
        self.data_hash = data_hash(site.secret, series)
        measured = data_hash(site.secret, series._replace(model=None))
        self.questions = Questions(site.store, site.policy, measured)
        self.ledger = ReleaseLedger(site.store, site.policy)
        self.question = ""
        self._prepared: tuple[tuple[TimeGrid, str], ClientSide] | None = None
        self._permitted: tuple[str, TimeGrid, str] | None = None

    def check_options(self, options: ClientOptions) -> None:
        """Refuse options that ask for more than the policy allows."""
        self._site.policy.check_options(
            options,
            self.series.client.num_sensors,
            is_declared=self.series.model is not None,
        )

    def ready(self, run: str, text: str, grid: TimeGrid) -> ClientSide:
        """The data prepared for a run with these options on the agreed time axis.

        Raises:
            PolicyError: the policy does not allow it, or not yet.
        """
        key, prepared = (grid, text), None
        if self._prepared is not None and self._prepared[0] == key:
            prepared = self._prepared[1]
            if self._permitted == (run, *key):
                return prepared
        options = ClientOptions.from_text(text)
        self.check_options(options)
        largest = self._site.policy.largest_for(self.series.client.num_sensors)
        question = question_of(options, grid, largest, self.series.model)
        now = self._site.clock()
        details = {"options": text, "period": period_text(grid)}
        self.questions.check(run, question, details, now)
        if prepared is None:
            try:
                start = functools.partial(draw_start, self._site.secret, self.data_hash)
                noise = SecretNoise(self._site.secret)
                prepared = self.prepare(self.series, grid, options.capped(largest), start, noise)
            except Exception:
                self.questions.fail(question, now)
                raise
            if prepared.model.state_dim > largest:
                raise PolicyError(f"its policy allows {counted(largest, 'state')} at most")
            lost = unused_notes({self.series.client.name: range_of(self.series)}, grid)
            notes = _notes(prepared, options, largest)
            for note in (*notes, *(f": {note}" for note in lost)):
                self._site.log(f"run '{run}'{note}")
        releases = () if prepared.protected is None else prepared.protected.releases
        if options.config.client_terms is None:
            content = f"{self.data_hash} {question}"
            releases = (Release("states without noise", content, lambda _: math.inf),)
        self.ledger.charge(run, releases, period_of(grid), now)
        self.questions.take(run, question, now)
        self._prepared, self.question = (key, prepared), question
        self._permitted = (run, *key)
        return prepared


def _notes(prepared: ClientSide, options: ClientOptions, largest: int) -> list[str]:
    """What the people at the site should know of a preparation, after the name of the run."""
    dim, sensors = prepared.model.state_dim, counted(prepared.data.num_sensors, "sensor")
    notes = []
    if dim == largest < options.config.max_state_dim:
        notes.append(
            f": policy.toml allows {counted(largest, 'state')} for {sensors}; without that limit "
            "more "
            "might have been chosen"
        )
    notes += [f": {note}" for note in prepared.notes]
    if prepared.protected is not None and prepared.protected.num_clipped:
        share = prepared.protected.num_clipped / max(int(prepared.is_observed.sum()), 1)
        notes.append(f": {100 * share:.2g} % of the states were shortened to the clipping bound")
    if prepared.learner is not None:
        notes.append(
            " asks for rounds of FedGC: every round shows the server "
            f"{counted(dim, 'more combination')} of "
            f"{sensors}"
        )
    return notes
