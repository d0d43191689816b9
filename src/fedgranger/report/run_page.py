"""The report of a run folder or result: hands its parts to the page."""

import json
from pathlib import Path
from typing import Any

from fedgranger.errors import RunError
from fedgranger.report.html import write_report
from fedgranger.report.root_cause import root_cause_view
from fedgranger.results import ROOT_CAUSE_FILE, Result

__all__ = ["write_run_report"]


def write_run_report(path: Path, result: Result, folder: Path | None = None) -> None:
    """Write the page of a run.

    Args:
        path: file to write.
        result: the run.
        folder: its folder, where a root-cause analysis may lie; default the page's.
    """
    has_tests = result.inference is not None
    other = result.inference.beside if result.inference is not None else None
    uncertainty = result.uncertainty
    write_report(
        path,
        result.edges(),
        result.manifest,
        result.trace,
        entries=result.entries() if has_tests else None,
        fedgc=result.fedgc_edges(),
        beside=None if other is None else result.edges(estimate=other.facts["test"]),
        uncertainty=None if uncertainty is None else uncertainty.table,
        prior_time=None if uncertainty is None else uncertainty.prior_time,
        root_causes=_root_causes(folder or path.parent),
    )


def _root_causes(folder: Path) -> dict[str, Any] | None:
    path = folder / ROOT_CAUSE_FILE
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        root_cause_view(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(
            f"{path}: cannot be read ({error}); run 'fedgranger rca' again or delete it"
        ) from None
    return found
