"""Panels with one odd sensor at client 'a', as arrays and as folders of CSV files."""

from pathlib import Path

import numpy as np

import fedgranger as fg

NUM_ROWS = 400


def odd_column(kind: str, num_rows: int = NUM_ROWS, seed: int = 7) -> np.ndarray:
    """One column. The walk drifts: of those that do not, half are called slow only."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(num_rows)
    if kind == "code":
        noise[[30, 31, 120, 121, 122]] = -9999.0
        return noise
    if kind == "stuck":
        noise[100:340] = 0.25
        return noise
    if kind == "holes":
        noise[5:-5] = np.nan
        return noise
    return {
        "clock": np.arange(num_rows) * 0.5 + 3,
        "counter": np.cumsum(rng.integers(0, 5, num_rows)).astype(float),
        "reset": np.concatenate(
            [np.cumsum(rng.integers(0, 5, n)) for n in (num_rows // 2, num_rows - num_rows // 2)]
        ).astype(float),
        "walk": noise.cumsum() + 0.15 * np.arange(num_rows),
        "slow": np.convolve(rng.standard_normal(num_rows + 60), 0.97 ** np.arange(60), "same")[
            :num_rows
        ],
    }[kind]


def odd_panel(kind: str, num_rows: int = NUM_ROWS, seed: int = 1) -> fg.Panel:
    """Two linked clients; the first has the odd sensor 'x' beside three ordinary ones."""
    options = {"clients": ["a", "b"], "edges": [("a", "b")], "sensor_dims": 3}
    panel, system = fg.simulate(2, num_rows, seed=1, **options)
    if seed != 1:  # new data from the same system
        panel, _ = fg.simulate(num_steps=num_rows, system=system, seed=seed)
    values = np.column_stack([panel["a"].values, odd_column(kind, num_rows)])
    sensors = {"a": ["s1", "s2", "s3", "x"], "b": ["s1", "s2", "s3"]}
    return fg.Panel.from_arrays({"a": values, "b": panel["b"].values}, sensors=sensors)


def odd_folder(folder: Path, kind: str, **options) -> Path:
    odd_panel(kind, **options).write(folder)
    return folder
