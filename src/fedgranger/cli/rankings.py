"""Rankings of suspects on the terminal; shared by `rca` and `federation watch`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import out
from fedgranger.rca import Ranking

SHOWN = 5


def print_rankings(found: Sequence[Ranking], top: int, path: Path) -> None:
    """Every ranking with its evidence, and where they were written."""
    if not found:
        out.print("No client left its normal range: nothing to explain.")
    for ranking in found:
        _show(ranking, top)
    out.print(f"written to {escape(str(path))} and the report", soft_wrap=True)


def _show(ranking: Ranking, top: int) -> None:
    out.print(f"[bold]{escape(ranking.name)}[/]: ", end="")
    if not ranking.is_defined:
        out.print(escape(ranking.evidence[0]), soft_wrap=True)
        return
    share = ranking.table["probability"].iloc[0]
    out.print(
        f"[bold]{escape(ranking.first)}[/] (first in {100 * share:.0f} % of resamples)",
        soft_wrap=True,
    )
    table = Table(box=None, header_style="bold")
    table.add_column("client", no_wrap=True)
    for name in ("score", "95 % range", "first", "surprise", "explained", "mostly by", "onset"):
        table.add_column(name, justify="left" if name == "mostly by" else "right", no_wrap=True)
    for row in ranking.table.head(top).to_dict("records"):
        explained = row["explained"] if np.isfinite(row["explained"]) else 0.0
        is_named = isinstance(row["explained_by"], str) and explained > 0.005
        table.add_row(
            escape(str(row["client"])),
            f"{row['score']:.2f}",
            f"{row['ci_low']:.2f} to {row['ci_high']:.2f}",
            f"{100 * row['probability']:.0f} %",
            f"{row['surprise']:.3g}" if np.isfinite(row["surprise"]) else "not seen",
            f"{100 * explained:.0f} %",
            escape(row["explained_by"]) if is_named else "–",
            f"{row['onset']:.0f}" if np.isfinite(row["onset"]) else "–",
        )
    out.print(table)
    for sentence in ranking.evidence:
        out.print(f"  {escape(sentence)}", soft_wrap=True)
    out.print()
