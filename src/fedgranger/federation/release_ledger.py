r"""A site's own ledger: what was released of its data with noise, over all runs, and what is left.

An entry is written, and on the disk, before the first bit that it speaks of leaves, so whatever
crashes, the ledger is an upper bound of what left. What is released again (the same content with
the same noise) costs nothing and is not charged again. Entries are only ever added.

Every entry is a Gaussian release of size μ about a period of time. An event lies in some of the
periods; those of entries that do not touch a new one disclose nothing of the same events. So the
cost of a new release is

$$\mu^2 = \sum_{\text{entries whose period touches the new one}} \mu_i^2,$$

where periods touch when they have a time step in common, or, for neighbours of w consecutive steps,
when less than w steps lie between them; for whole records all entries count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from fedgranger.data.time_axis import TimeGrid
from fedgranger.federation.policy import PolicyError, SitePolicy
from fedgranger.federation.store import Store
from fedgranger.privacy.accounting import composed, epsilon_of
from fedgranger.privacy.release import Release
from fedgranger.privacy.sensitivity import Neighbours

RECORD = "releases"


class BudgetError(PolicyError):
    """The site's budget is spent; what was released before can still be released again."""


class Entry(NamedTuple):
    """One release.

    Attributes:
        run: whose it was first.
        message: what was released.
        content: a name that only the site can make, for what the noise hides.
        size: μ by the neighbours of the site's policy at that time.
        neighbours: that relation.
        first: time of the first step that it is about.
        last: time of the last one.
        interval: between two steps.
        time: when it was charged, seconds since 1970.
    """

    run: str
    message: str
    content: str
    size: float
    neighbours: tuple[str, int]
    first: Fraction
    last: Fraction
    interval: Fraction
    time: float


class Period(NamedTuple):
    """Times of the first and the last step that a release is about, and the time between two."""

    first: Fraction
    last: Fraction
    interval: Fraction


def period_of(grid: TimeGrid) -> Period:
    """The whole time axis."""
    last = grid.first + (grid.stretches[-1][1] - 1) * grid.interval
    return Period(grid.first, last, grid.interval)


class ReleaseLedger:
    """The record of one site on its disk."""

    def __init__(self, store: Store, policy: SitePolicy) -> None:
        self._store, self._policy = store, policy

    def entries(self) -> list[Entry]:
        """All of them, oldest first.

        Raises:
            PolicyError: the record is damaged, so nothing may be released.
        """
        damaged = PolicyError(
            "its ledger of what was revealed is damaged, so it answers nothing; its site must "
            "restore the record from a backup"
        )
        record = self._store.load(RECORD, if_damaged=damaged)
        return [] if record is None else [_entry(row) for row in record[0]["entries"]]

    def charge(self, run: str, releases: Sequence[Release], period: Period, now: float) -> None:
        """Write down what is about to be released; when this returns, it is on the disk.

        Raises:
            BudgetError: the policy's ε would be exceeded; nothing is written.
        """
        if not releases:
            return
        with self._store.locked():
            kept = self.entries()
            known = {entry.content for entry in kept}
            near = self._policy.near
            relation = (near.kind, near.steps)
            new = [
                Entry(run, one.message, one.content, one.size(near), relation, *period, now)
                for one in releases
                if one.content not in known
            ]
            if not new:
                return
            others = [entry for entry in kept if entry.neighbours != relation]
            if self._policy.epsilon < math.inf and any(e.size < math.inf for e in others):
                raise PolicyError(
                    "its policy's neighbours have changed since noise was first added, and what "
                    "was released before cannot be counted by the new ones; its site must keep "
                    "them"
                )
            self._check([*kept, *new], new[0], near)
            self._store.save(RECORD, {"entries": [_row(entry) for entry in [*kept, *new]]}, {})

    def _check(self, entries: list[Entry], about: Entry, near: Neighbours) -> None:
        size = composed(entry.size for entry in entries if _touch(entry, about, near))
        cost, policy = epsilon_of(size, self._policy.delta), self._policy
        if cost > policy.epsilon:
            raise BudgetError(
                f"its policy's privacy budget (epsilon = {policy.epsilon:g} at delta = "
                f"{policy.delta:g}) would be exceeded; ask for more noise (a smaller epsilon), or "
                "for what was released before"
            )


def spent(entries: Sequence[Entry], delta: float) -> float:
    """ε of the events about which most was released."""
    near = [Neighbours(*entry.neighbours) for entry in entries]
    sizes = [
        composed(other.size for other in entries if _touch(other, entry, relation))
        for entry, relation in zip(entries, near, strict=True)
    ]
    return epsilon_of(max(sizes, default=0.0), delta)


def _touch(one: Entry, other: Entry, near: Neighbours) -> bool:
    if near.kind == "record":
        return True
    margin = (near.steps - 1) * max(one.interval, other.interval)
    return one.first <= other.last + margin and other.first <= one.last + margin


def _row(entry: Entry) -> dict[str, Any]:
    texts = {name: str(getattr(entry, name)) for name in (*Period._fields, "size")}
    return {**entry._asdict(), **texts}


def _entry(row: dict[str, Any]) -> Entry:
    times = {name: Fraction(row[name]) for name in Period._fields}
    kind, steps = row["neighbours"]
    return Entry(**{**row, **times, "size": float(row["size"]), "neighbours": (kind, steps)})
