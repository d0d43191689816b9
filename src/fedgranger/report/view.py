"""What the page shows, as plain text and numbers; the templates turn it into markup.

Every text is unescaped: the template engine escapes it. A section that a run has nothing for is
None, and the page leaves it out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Terms = tuple[tuple[str, str], ...]
"""A list of terms with their values."""


class Column(NamedTuple):
    """Heading of one table column; numbers are set right-aligned."""

    heading: str
    is_number: bool = False


class Table(NamedTuple):
    """Cells of a table; the caption is its name."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


class Chart(NamedTuple):
    """A chart that the page's script draws.

    Attributes:
        key: its name in the page.
        title: what it shows.
        words: what is seen in it, for those who do not see it.
        data: what the script needs; `kind` says how it is drawn.
        headings: of the table that readers without scripts see.
        rows: its numbers.
    """

    key: str
    title: str
    words: str
    data: Mapping[str, Any]
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


class Headline(NamedTuple):
    """The answer, the question behind it, the strongest edges and reasons to doubt."""

    answer: str
    is_tested: bool
    question: str
    strongest: str
    cautions: tuple[str, ...]


class RankedClient(NamedTuple):
    """A suspect: in which share of the resamples it comes first, and its score."""

    name: str
    share: float
    score: str


class CauseWindow(NamedTuple):
    """Who started what is seen in one window; no ranking where none is defined."""

    name: str
    ranking: tuple[RankedClient, ...]
    evidence: tuple[str, ...]


class RootCauses(NamedTuple):
    """A root-cause analysis, its first windows and how many more there are."""

    scorer: str
    windows: tuple[CauseWindow, ...]
    more: int


class PairTable(NamedTuple):
    """Rows of the first pairs, and how many there are in all."""

    table: Table
    num_pairs: int


class TestAudit(NamedTuple):
    """How far the p-values of one test can be trusted, and what it could have found."""

    name: str
    verdict: str
    sentences: tuple[str, ...]
    chart: Chart | None
    clients: Table | None
    control: str
    controls: Table | None
    more_controls: int


class Audit(NamedTuple):
    """The run's own test and the other one, when both were made."""

    title: str
    own: TestAudit
    other: TestAudit | None


class Training(NamedTuple):
    """Losses, and variances along training where the run has them."""

    is_run: bool
    status: str
    losses: Chart | None
    variances: tuple[Chart, ...] | None
    prior_times: Table | None


class Checks(NamedTuple):
    """Distribution of the p-values, what it means, and diagnostics per client."""

    charts: tuple[Chart, ...]
    words: str
    clients: Table | None


class LocalFit(NamedTuple):
    """How well a client's own model fits."""

    words: str
    chart: Chart | None
    sensors: Table
    more: int


class Client(NamedTuple):
    """Everything about one client."""

    name: str
    hints: str
    edges: str
    facts: Terms
    fit: LocalFit | None
    sent: Terms


class Clients(NamedTuple):
    """One entry per client, and notes on reading their data."""

    notes: tuple[str, ...]
    pages: tuple[Client, ...]


class FactGroup(NamedTuple):
    """Facts under one heading."""

    heading: str
    terms: Terms
    notes: tuple[str, ...] = ()
    table: Table | None = None


class Page(NamedTuple):
    """The page: `drawn` says in words what the graph shows."""

    version: str
    clients: tuple[str, ...]
    has_test: bool
    drawn: str
    headline: Headline
    root_causes: RootCauses | None
    pairs: PairTable | None
    audit: Audit | None
    training: Training | None
    checks: Checks | None
    client_pages: Clients | None
    sent: Table | None
    facts: tuple[FactGroup, ...]


def charts_of(part: Any) -> Iterator[Chart]:
    """All charts of a page, or of any part of it."""
    if isinstance(part, Chart):
        yield part
    elif isinstance(part, tuple):
        for inner in part:
            yield from charts_of(inner)
