"""How many incidents one slow fault makes, and two faults, by rules that join alarms.

    python -m benchmarks.incidents [--sets N]

Three clients a -> b -> c, states of autocorrelation 0.9, four sensors each, 3000 rows of training;
1200 new rows in which b's state moves by 8 or 10 s.d. In a slow fault it takes 60 or 240 rows and
stays; two faults last 60 rows each, some rows apart. Calm records have nothing. Rules: an alarm
ends after so many calm steps (50 is the default, 200, 400), or 50 and the levels of the sensors
join alarms (`rca.joined_alarms`). Printed per kind: records with no, one, two and more incidents,
and of slow faults the median row, after their beginning, of the alarm and of the level left.
"""

import argparse

import numpy as np
from scipy.signal import lfilter

import fedgranger as fg
from fedgranger.rca import OnlineAnalysis
from fedgranger.rca.excursions import find_excursions
from fedgranger.rca.joined_alarms import join_alarms

MEMORY, BEGIN, STEPS = 0.9, 300, 1200
CALM_STEPS = (50, 200, 400)
SLOW = {
    f"slow fault of {size} s.d., {ramp} rows": [(BEGIN, ramp, STEPS, size)]
    for size in (8, 10)
    for ramp in (60, 240)
}
TWO = {
    f"two faults, {apart} rows apart": [(BEGIN, 10, 60, 8), (BEGIN + 70 + apart, 10, 60, 8)]
    for apart in (60, 150, 300)
}


def records(num_steps, seed, faults=()):
    """A chain of three clients; a fault is its first row, rows to grow, rows it lasts, and size."""
    noise = np.random.default_rng(seed).standard_normal((num_steps + 200, 3))
    noise *= (1 - MEMORY**2) ** 0.5
    states = np.zeros((num_steps + 200, 3))
    states[:, 0] = lfilter([1.0], [1.0, -MEMORY], noise[:, 0])
    for k in (1, 2):
        driven = np.r_[0.0, 0.0, 0.2 * states[:-2, k - 1]]
        states[:, k] = lfilter([1.0], [1.0, -MEMORY], 0.8 * noise[:, k] + driven)
    states = states[200:] / states[200:].std(axis=0)
    rows = np.arange(num_steps)
    for first, ramp, length, size in faults:
        grows, falls = (rows - first) / ramp, 1 - (rows - first - length) / ramp
        states[:, 1] += size * np.clip(np.minimum(grows, falls), 0.0, 1.0)
    loadings = np.random.default_rng(5).uniform(0.5, 1.5, (3, 4))
    rng = np.random.default_rng(seed + 10**6)
    return fg.Panel.from_arrays(
        {
            name: states[:, [k]] * loadings[k] + 0.3 * rng.standard_normal((num_steps, 4))
            for k, name in enumerate("abc")
        }
    )


def counted(run, panel):
    """Incidents by every rule, sensors that strayed, and rows of the first alarm and level left."""
    levels = find_excursions(run, panel)
    alarms = {
        steps: OnlineAnalysis(run, calm_steps=steps).feed(panel.slice(0, panel.num_steps))
        for steps in CALM_STEPS
    }
    joined = join_alarms(alarms[CALM_STEPS[0]], levels)
    counts = [len(found) for found in alarms.values()] + [len(joined)]
    first = alarms[CALM_STEPS[0]][0].step if joined else np.nan
    since = joined[0].since if joined and joined[0].since is not None else np.nan
    return counts, len(levels.found), (first - BEGIN, since - BEGIN)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=40)
    sets = parser.parse_args().sets
    config = fg.RunConfig(test="debiased", lags=1, state_dim=1)
    run = fg.fit(records(3000, seed=1), config)
    rules = [f"{steps} calm" for steps in CALM_STEPS] + ["levels"]
    for kind, faults in {"calm": [], **SLOW, **TWO}.items():
        found = [counted(run, records(STEPS, 7000 + k, faults)) for k in range(sets)]
        counts = np.array([one[0] for one in found])
        parts = [
            f"{rule}: {'/'.join(str((counts[:, k] == n).sum()) for n in range(3))}"
            f"/{(counts[:, k] > 2).sum()}"
            for k, rule in enumerate(rules)
        ]
        strayed = sum(one[1] > 0 for one in found)
        line = f"{kind}: {'; '.join(parts)}; {strayed} records with sensors that strayed"
        if kind in SLOW:
            alarm, since = np.nanmedian(np.array([one[2] for one in found]), axis=0)
            line += f"; alarm after {alarm:.0f} rows, level left by {since:.0f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
