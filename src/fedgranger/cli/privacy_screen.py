"""What `fedgranger privacy` shows."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

from rich.markup import escape

from fedgranger.cli.console import out, print_json, print_line, progress_report
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.config import PrivacyOptions
from fedgranger.errors import ConfigError, RunError
from fedgranger.federation.policy import POLICY_FILE, read_policy
from fedgranger.federation.release_ledger import ReleaseLedger, spent
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.flare.settings import state_folder
from fedgranger.manifest_types import PrivacyFacts
from fedgranger.privacy.accounting import epsilon_of
from fedgranger.privacy.paper_formulas import noise_of, step_sensitivity, whole_run
from fedgranger.results import Result
from fedgranger.runtime.privacy_plan import PlannedSystem, PlanRow, make_plan

NO_NOISE = "no noise was added: whoever received the messages has the states as they are"
DIRECTIONS = {
    "to-server": "noise on every client's messages protects from the server and from all others",
    "to-clients": "the server is trusted; noise on its gradients protects clients from each other",
}


def show_costs(folder: Path, *, json_output: bool) -> None:
    """What a run released, or a site over all runs."""
    if (folder / POLICY_FILE).exists():
        _show_site(folder, json_output=json_output)
        return
    facts = Result.load(folder).manifest.privacy
    if json_output:
        print_json(facts)
    elif facts is None:
        print_line(NO_NOISE)
    else:
        _show_run(facts)


def _show_run(facts: PrivacyFacts) -> None:
    print_line(f"ε = {facts.epsilon:.3g} at δ = {facts.delta:g}: {facts.neighbours}")
    print_line(DIRECTIONS[facts.direction])
    rows, missing = [], {}
    for name, client in facts.clients.items():
        for row in client.messages:
            cells = (row.message, str(row.times), f"{row.size:.3g}")
            rows.append((escape(name), *cells, f"{row.epsilon:.3g}"))
        rows.append((escape(name), "all together", "", "", f"{client.epsilon:.3g}"))
        for line in client.not_covered:
            missing.setdefault(line, []).append(name)
    out.print(
        NarrowTable(("client", "message", "times", "μ", "ε"), rows, left=("client", "message"))
    )
    noisy = {name: c.added_noise for name, c in facts.clients.items() if c.added_noise}
    for name, noise in noisy.items():
        share = facts.clients[name].clipped_share
        print_line(
            f"{name}: noise of {noise:.3g} standard deviations of a state; about "
            f"{100 * share:.2g} % of its states were clipped"
        )
    print_line("\nnot covered by ε:")
    for line, names in missing.items():
        who = "" if len(names) == len(facts.clients) else f" ({', '.join(names)})"
        print_line(f"- {line}{who}")


def _show_site(kit: Path, *, json_output: bool) -> None:
    policy = read_policy(kit / POLICY_FILE)
    store = Store(DiskFiles(state_folder(kit)))
    entries = ReleaseLedger(store, policy).entries()
    total = spent(entries, policy.delta)
    if json_output:
        names = ("first", "last", "interval")
        rows = [{**e._asdict(), **{name: str(getattr(e, name)) for name in names}} for e in entries]
        facts = {"epsilon": total, "delta": policy.delta, "budget": policy.epsilon}
        print_json({**facts, "releases": rows})  # no noise or no limit is null
        return
    limit = "no limit" if policy.epsilon == math.inf else f"of at most {policy.epsilon:g}"
    print_line(
        f"revealed so far: ε = {total:.3g} ({limit}) at δ = {policy.delta:g}: {policy.near.words()}"
    )
    rows = []
    for entry in entries:
        when = datetime.fromtimestamp(entry.time, UTC).strftime("%Y-%m-%d %H:%M")
        cost = epsilon_of(entry.size, policy.delta)
        rows.append((when, escape(entry.run), entry.message, f"{entry.size:.3g}", f"{cost:.3g}"))
    left = ("charged", "run", "message")
    out.print(NarrowTable((*left, "μ", "ε alone"), rows, left=left))


def show_plan(
    system: PlannedSystem,
    options: PrivacyOptions,
    epsilons: list[float],
    strength: float,
    *,
    paper: bool,
    json_output: bool,
) -> None:
    """What a run would cost and find, in a table or as JSON."""
    with progress_report() as report:
        rows = make_plan(system, options, epsilons, strength, report)
    if json_output:
        print_json([row._asdict() for row in rows])
        return
    _show_plan(system, options, rows, strength)
    if paper:
        _show_paper(epsilons, options.delta, system.num_steps)


def _show_plan(
    system: PlannedSystem, options: PrivacyOptions, rows: list[PlanRow], strength: float
) -> None:
    terms = options.terms
    if terms is None:
        raise RunError("the plan has no noise")
    print_line(
        f"{system.name}, {system.num_steps} time steps; δ = {terms.delta:g}: "
        f"{terms.neighbours.words()}"
    )
    found = f"chance to find {strength:g}"
    columns = ("ε", "noise / state s.d.", found, "found with 80 %", "steps needed")
    cells = [
        (
            "∞" if row.epsilon is None else f"{row.epsilon:.3g}",
            f"{row.noise:.3g}",
            f"{row.power:.2f}",
            f"{row.detectable:.3g}",
            f"{row.steps_needed:.3g}",
        )
        for row in rows
    ]
    out.print(NarrowTable(columns, cells))
    print_line(
        f"an influence of strength {strength:g} (Frobenius norm of its block), level 5 %, the "
        "median over pairs; 'steps needed' for 80 %; the latent test, one lag"
    )


def _show_paper(epsilons: list[float], delta: float, num_steps: int) -> None:
    """The paper's formula beside what it covers; see `privacy.paper_formulas`."""
    print_line("")
    for epsilon in epsilons:
        sigma = noise_of(step_sensitivity(1.0), epsilon, delta)
        whole = whole_run(epsilon, delta, num_steps)
        print_line(
            f"the paper's formula per step: ε = {epsilon:g} by noise of {sigma:.3g} clipping "
            "bounds, which covers one message of one step; the whole run of "
            f"{num_steps} steps by it: ε = {whole:.3g} where one change moves them all"
        )


def read_numbers(words: str) -> list[float]:
    """Values of ε, separated by commas."""
    try:
        values = [float(part) for part in words.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < math.inf for value in values):
        raise ConfigError(f"--epsilons is {words!r}; give numbers above 0, separated by commas")
    return values
