"""The run that a client follows: how far it is, kept on the site's disk, and its rounds.

θ of a round is a fact that never changes; those of the last two rounds are kept, and a new one is
on the disk before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedgranger.client.learner import ClientMemory, Learner
from fedgranger.data.time_axis import TimeGrid
from fedgranger.federation import answers
from fedgranger.federation.agreed_options import ClientOptions
from fedgranger.federation.answers import Answer
from fedgranger.federation.codec import Packet
from fedgranger.federation.preparation import PermittedClient
from fedgranger.federation.questions import Site
from fedgranger.federation.release_ledger import BudgetError, period_of
from fedgranger.federation.requests import RefusalError
from fedgranger.federation.store import Store
from fedgranger.privacy.release import Release
from fedgranger.text import counted

RECORD = "party"
KEPT_ROUNDS = 2


class FollowedRun(NamedTuple):
    """What a client knows of a run.

    Attributes:
        run: its name.
        options: the client's options as text.
        epoch: of the server's last start.
        round_index: the last round.
        rounds: θ of the rounds that it still has.
        grid: the common time axis; None before the run has begun.
    """

    run: str = ""
    options: str = ""
    epoch: int = 0
    round_index: int = 0
    rounds: Mapping[int, ClientMemory] = {}
    grid: TimeGrid | None = None

    @property
    def asked(self) -> ClientOptions:
        """The options of the run, as the client received them."""
        return ClientOptions.from_text(self.options)

    def with_round(self, round_index: int, memory: ClientMemory) -> FollowedRun:
        """One round further."""
        kept = {k: one for k, one in self.rounds.items() if k > round_index - KEPT_ROUNDS}
        return self._replace(round_index=round_index, rounds={**kept, round_index: memory})

    def save(self, store: Store, data_hash: str) -> None:
        """Write it to the disk, whole or not at all."""
        grid, arrays = self.grid, {}
        values = {
            "run": self.run,
            "options": self.options,
            "epoch": self.epoch,
            "round": self.round_index,
            "rounds": sorted(self.rounds),
            "data": data_hash,
            "grid": None if grid is None else [grid[0], str(grid[1]), str(grid[2])],
        }
        for k, memory in self.rounds.items():
            arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"] = memory
        if grid is not None:
            arrays["stretches"] = np.array(grid.stretches, dtype=np.int64)
        store.save(RECORD, values, arrays)


def load_run(store: Store, data_hash: str) -> FollowedRun | None:
    """Read it; None when there is none, or of other data: what was learned does not hold."""
    record = store.load(RECORD)
    if record is None or record[0]["data"] != data_hash:
        return None
    values, arrays = record
    grid = None
    if values["grid"] is not None:
        if "stretches" not in arrays:  # of an older version
            return None
        kind, first, interval = values["grid"]
        stretches = tuple((start, stop) for start, stop in arrays["stretches"].tolist())
        grid = TimeGrid(kind, Fraction(first), Fraction(interval), stretches)
    rounds = {
        k: ClientMemory(arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"])
        for k in values["rounds"]
    }
    return FollowedRun(
        values["run"], values["options"], values["epoch"], values["round"], rounds, grid
    )


class OwnRounds:
    """A client's part of FedGC's rounds.

    Attributes:
        followed: the run, as it lies on the disk.
    """

    def __init__(self, site: Site, client: PermittedClient) -> None:
        self._site, self._client = site, client
        self.followed = load_run(site.store, client.data_hash) or FollowedRun()
        self._pieces: dict[tuple[int, int], np.ndarray] = {}

    def follow(self, run: str, options: str) -> bool:
        """Follow a run with these options; whether it is the one that was followed already."""
        if (run, options) != self.followed[:2]:  # a late offer of another run may have come
            kept = load_run(self._site.store, self._client.data_hash)  # between, so look again
            self.followed = kept or self.followed
        is_known = (run, options) == self.followed[:2]
        if not is_known:
            self.followed = FollowedRun(run, options)
        return is_known

    def step(self, learner: Learner, packet: Packet) -> Answer:
        """Learn from the gradients that came, and send the states that are wanted."""
        values = packet.values
        round_index, wanted = int(values["round"]), int(values["want_piece"])
        if round_index < self.followed.round_index - 1:
            raise RefusalError("stale", f"the run has reached round {self.followed.round_index}")
        if int(values["learn_piece"]) >= 0 and round_index not in self.followed.rounds:
            self._learn(learner, round_index, packet)
        if wanted < 0:
            return answers.DONE
        memory = self.followed.rounds.get(round_index)
        if memory is None:
            raise RefusalError("unavailable", f"it does not have round {round_index}")
        if learner.piece_length(round_index, wanted) < 1:
            raise RefusalError("invalid", f"there is no piece {wanted}")
        self._client.questions.show(memory.augmentation)
        self._check_rounds(round_index)
        self.charge(learner.round_releases(memory))
        return answers.round_message(
            learner, memory, round_index, wanted, want_filtered=bool(values["want_filtered"])
        )

    def _check_rounds(self, round_index: int) -> None:
        """Refuse more rounds than the run's noise was shared among."""
        terms = self.followed.asked.config.client_terms
        if terms is not None and round_index >= terms.rounds:
            raise BudgetError(
                f"this run's privacy is shared among {counted(terms.rounds, 'round')} of FedGC"
            )

    def charge(self, releases: tuple[Release, ...]) -> None:
        """Write down what is about to be released, or to be learned from, before it is."""
        if releases and self.followed.grid is not None:
            period, now = period_of(self.followed.grid), self._site.clock()
            self._client.ledger.charge(self.followed.run, releases, period, now)

    def _learn(self, learner: Learner, round_index: int, packet: Packet) -> None:
        """Collect gradients; with the last piece θ of the round is computed and written."""
        self._check_rounds(round_index)
        piece, num_pieces = (int(packet.values[name]) for name in ("learn_piece", "learn_pieces"))
        before = self.followed.rounds.get(round_index - 1)
        if before is None:
            raise RefusalError("unavailable", f"it does not have round {round_index - 1}")
        gradients = packet.arrays["gradients"]
        shape = (learner.piece_length(round_index - 1, piece), learner.state_dim)
        if num_pieces != learner.num_pieces(round_index - 1) or gradients.shape != shape:
            raise RefusalError(
                "invalid", f"the gradients have shape {gradients.shape}, not {shape}"
            )
        self._pieces = {key: value for key, value in self._pieces.items() if key[0] == round_index}
        self._pieces[round_index, piece] = gradients
        if piece < num_pieces - 1:
            return
        if len(self._pieces) != num_pieces:
            raise RefusalError("unavailable", "some of the round's gradients were lost")
        parts = [self._pieces[round_index, k] for k in range(num_pieces)]
        memory = learner.learn(before, round_index, parts)
        self.charge(learner.feedback_releases(memory, round_index))
        self.write(self.followed.with_round(round_index, memory))

    def write(self, followed: FollowedRun) -> None:
        """Write to disk first, then change memory: a failed write changes nothing."""
        followed.save(self._site.store, self._client.data_hash)
        self.followed, self._pieces = followed, {}
