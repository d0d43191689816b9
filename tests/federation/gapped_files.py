"""Files of clients that begin and end at other times and lack rows and single cells, and models."""

import numpy as np

import fedgranger as fg
from fedgranger.client.params import known_models


def write_tables(folder, seed):
    """Three clients of one simulation, each with rows, and sometimes a clock, of its own.

    From seed 4 on, 3 % of the cells are empty.

    Returns their local models.
    """
    rng = np.random.default_rng(seed)
    panel, truth = fg.simulate(3, 900, seed=seed)
    common = np.ones(900, dtype=bool)
    for length in rng.integers(1, 40, rng.integers(0, 3)):
        start = rng.integers(50, 800)
        common[start : start + length] = False
    start = np.datetime64("2026-01-01T00:00:00", "s")
    for k, client in enumerate(panel):
        kept = common.copy()
        kept[: rng.integers(0, 10)] = False
        kept[len(kept) - rng.integers(0, 10) :] = rng.integers(0, 10) > 8
        kept[rng.integers(20, 880, rng.integers(0, 20))] = False
        if rng.integers(2):
            begin = rng.integers(50, 800)
            kept[begin : begin + rng.integers(3, 60)] = False
        rows = np.flatnonzero(kept)
        if seed % 4 == 3 and k == 1:
            rows = rows[rows % 2 == 0]  # every other step
        stamps = start + rows * np.timedelta64(10, "s")
        header = ",".join(["time", *client.sensors])
        empty = np.random.default_rng([seed, k]).random(client.values.shape) < 0.03 * (seed > 3)
        lines = [
            f"{stamp},{','.join('' if hole else repr(cell) for cell, hole in cells)}"
            for stamp, cells in zip(
                stamps, map(zip, client.values[rows].tolist(), empty[rows].tolist()), strict=True
            )
        ]
        (folder / f"{client.name}.csv").write_text("\n".join([header, *lines]) + "\n")
    return known_models(truth)
