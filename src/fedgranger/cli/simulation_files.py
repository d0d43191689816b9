"""The files of a simulation."""

from __future__ import annotations

from pathlib import Path

from fedgranger.client.params import known_models, write_models
from fedgranger.data.panel import Panel
from fedgranger.data.truth import Truth


def write_simulation(
    folder: Path, panel: Panel, truth: Truth, format: str = "csv", noise_factor: float = 1.0
) -> None:
    """Write the data files, `truth.json` and the clients' local models, `models.json`.

    The files of an earlier simulation in the folder are removed first. The models are the true
    ones, with this multiple of R; a client with a counter has none, because no stationary model
    describes it, and a nonlinear system has none.
    """
    if (folder / "truth.json").exists():
        for name in Truth.read(folder / "truth.json").clients:
            for suffix in (".csv", ".parquet"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)
    panel.write(folder, format=format)
    truth.write(folder / "truth.json")
    models = {} if truth.process_cov is None else known_models(truth, noise_factor)
    described = {
        name: model
        for name, model in models.items()
        if panel[name].num_sensors == model.num_sensors
    }
    (folder / "models.json").unlink(missing_ok=True)
    if described:
        write_models(folder / "models.json", described)
