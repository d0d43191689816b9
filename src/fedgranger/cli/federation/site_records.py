"""`federation allow`, `edges` and `log`: what a party's own disk holds, and its word on runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import Json, out, print_beside, print_json, print_line
from fedgranger.cli.federation.common import Kit, client_of, federation
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.errors import RunError
from fedgranger.flare.identity import role_of
from fedgranger.flare.settings import audit_log, read_edges_of_site, state_folder
from fedgranger.text import counted, utc_stamp

LOG_COLUMNS = ("time", "event", "run", "request", "round", "answer", "bytes", "reason", "sensors")


@federation.command()
def allow(
    kit: Kit,
    run: Annotated[str, typer.Argument(help="Name of a run that waits.")],
    question: Annotated[
        str, typer.Option(help="Allow this question without asking back; shown by this command.")
    ] = "",
) -> None:
    """Show what a run asks for that waits for this site's word (ask = true), and let it go on."""
    from fedgranger.federation.questions import ALLOWED, WAITING
    from fedgranger.federation.store import DiskFiles, Store

    client_of(kit)
    store = Store(DiskFiles(state_folder(kit)))
    found = store.load(WAITING)
    waiting: dict[str, Any] = {} if found is None else found[0]["runs"]
    if run not in waiting:
        names = ", ".join(waiting) or "none"
        raise RunError(f"no run '{run}' waits here; waiting: {names}")
    asks = waiting[run]
    for name in ("question", "options", "period"):
        print_line(f"{name}: {asks[name]}")
    if not question:
        if not sys.stdin.isatty():
            raise RunError(f"add '--question {asks['question']}' to allow what is shown above")
        typer.confirm(f"Let run '{run}' go on?", abort=True)
    elif question != asks["question"]:
        raise RunError(
            f"run '{run}' asks question {asks['question']}, not {question}; look at it once more"
        )
    before = store.load(ALLOWED)
    allowed = {} if before is None else before[0]["runs"]
    audit_log(kit).add("allowed", run=run, **asks)
    store.save(ALLOWED, {"runs": {**allowed, run: asks["question"]}}, {})
    out.print(f"run '{escape(run)}' may go on")


@federation.command()
def edges(kit: Kit, json_output: Json = False) -> None:
    """Show what the last run sent this site: what its own edges do, in its sensors; all pairs."""
    name = client_of(kit)
    pairs, own = read_edges_of_site(state_folder(kit))
    if json_output:
        print_json({"own_edges": own, "pairs": pairs})
        return
    for one in own.values():
        print_line(one["sentence"])
    touching = [pair for pair in pairs if name in (pair["cause"], pair["effect"])]
    found = sum(bool(pair["is_edge"]) for pair in touching)
    if not found and not own:
        print_line("no edge from or to this site was found")
    elif len(own) < found:
        count = found - len(own)
        print_line(f"edges of this site whose response over time cannot be shown: {count}")
    columns = ("cause", "effect", "edge", "p-value", "strength")
    tested = [pair for pair in pairs if pair["p_value"] is not None]
    rows = (
        (
            escape(pair["cause"]),
            escape(pair["effect"]),
            {True: "yes", False: "no"}.get(pair["is_edge"], ""),
            f"{pair['p_value']:.3g}",
            _short(pair),
        )
        for pair in sorted(tested, key=lambda pair: pair["p_value"])
    )
    out.print(NarrowTable(columns, rows, left=("cause", "effect", "edge")))
    if len(tested) < len(pairs):
        print_line(f"pairs that were not tested: {len(pairs) - len(tested)}")


def _short(pair: Mapping[str, Any]) -> str:
    return "" if pair["strength"] is None else f"{pair['strength']:.3g}"


@federation.command()
def log(
    kit: Kit,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no line was changed.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Show everything that left this site or was refused; at the server, what was refused."""
    from fedgranger.federation.audit_log import read_lines
    from fedgranger.federation.audit_log import verify as check_chain

    role_of(kit)  # any party has one
    path = state_folder(kit) / "audit.jsonl"
    count = check_chain(path) if verify else 0
    lines = list(read_lines(path))
    if json_output:
        print_json(lines)
    else:
        rows = []
        for line in lines:
            line["sensors"] = ", ".join(line.get("sensors") or ())
            rest = ("" if line.get(name) is None else str(line[name]) for name in LOG_COLUMNS[1:])
            rows.append((utc_stamp(float(line["time"])), *map(escape, rest)))
        shown = len(LOG_COLUMNS) - (not any(row[-1] for row in rows))  # no sensor was sent
        columns, rows = LOG_COLUMNS[:shown], [row[:shown] for row in rows]
        left = [name for name in columns if name not in ("round", "bytes")]
        out.print(NarrowTable(columns, rows, left=left))
        listed = {line["answer"]: line["fields"] for line in lines if line.get("fields")}
        for kind, fields in listed.items():
            print_line(f"fields of '{kind}': {fields}")
    if verify:
        print_beside(
            f"{counted(count, 'line')}, none changed; the last has hash "
            f"{lines[-1]['hash'] if lines else '-'}"
        )
