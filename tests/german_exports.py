"""Exports of a German plant with a known answer: the files of the trial in docs/trials.md.

Kessel drives Turbine three minutes later, Turbine drives Kondensator one minute later. All but the
pump have a common daily rhythm.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

EDGES = {("Kessel", "Turbine"): 3, ("Turbine", "Kondensator"): 1}
"""Cause and effect, with the delay in minutes."""
STARTS = "23.10.2026 00:00"


def states(rng: np.random.Generator, num_rows: int) -> dict[str, np.ndarray]:
    own = {"Kessel": 0.9, "Turbine": 0.7, "Kondensator": 0.8, "Speisepumpe": 0.85}
    out = {name: rng.standard_normal(num_rows) for name in own}
    for row in range(3, num_rows):
        for name, factor in own.items():
            out[name][row] += factor * out[name][row - 1]
        out["Turbine"][row] += 0.35 * out["Kessel"][row - 3]
        out["Kondensator"][row] += 0.3 * out["Turbine"][row - 1]
    return out


def write_plant(folder: Path, num_rows: int = 3 * 1440, seed: int = 11) -> Path:
    """One file per unit, each written in another way."""
    rng = np.random.default_rng(seed)
    state = states(rng, num_rows)
    day = np.sin(2 * np.pi * np.arange(num_rows) / 1440)
    time = pd.date_range(pd.to_datetime(STARTS, dayfirst=True), periods=num_rows, freq="min")

    def sensor(name, level, gain, rhythm=0.0):
        return level + gain * (state[name] + 0.4 * rng.standard_normal(num_rows)) + rhythm * day

    def german(values):
        return [f"{value:.2f}".replace(".", ",") for value in values]

    stamps = time.strftime("%d.%m.%Y %H:%M:%S")
    boiler = pd.DataFrame(
        {
            "Zeitstempel": stamps,
            "Dampfdruck": german(sensor("Kessel", 85, 0.8, 0.5)),
            "Dampftemperatur": german(sensor("Kessel", 520, 2.5, 1)),
            "Dampfmenge": german(sensor("Kessel", 210, 3)),
        }
    )
    boiler.loc[rng.integers(100, num_rows - 100, 25), "Dampftemperatur"] = "Bad Input"
    head = "Prozessdaten-Export PLS\nWerk Süd;Kessel 1\n\n"
    text = boiler.to_csv(sep=";", index=False, lineterminator="\n").split("\n", 1)
    _write(folder / "Kessel.csv", f"{head}{text[0]}\n;bar;°C;t/h\n{text[1]}")
    turbine = pd.DataFrame(
        {
            "Zeitstempel": stamps,
            "Drehzahl [rpm]": german(sensor("Turbine", 3000, 1.5)),
            "Leistung [MW]": german(sensor("Turbine", 62, 0.6, 0.8)),
            "Lagertemperatur [°C]": german(sensor("Turbine", 71, 0.5, 1)),
            "Energie [MWh]": german(12000 + np.cumsum(62 + 0.6 * state["Turbine"]) / 60),
        }
    ).drop(index=range(num_rows // 2, num_rows // 2 + 90))
    _write(folder / "Turbine.csv", turbine.to_csv(sep=";", index=False))
    late = time + pd.Timedelta(seconds=7)
    condenser = pd.DataFrame(
        {
            "Datum": late.strftime("%d.%m.%Y"),
            "Uhrzeit": late.strftime("%H:%M:%S"),
            "Vakuum [mbar]": german(sensor("Kondensator", 45, 0.7)),
            "Kühlwasser [°C]": german(sensor("Kondensator", 18, 0.3, 2)),
            "Hotwell [°C]": german(sensor("Kondensator", 32, 0.4, 1)),
            "Status": np.where(rng.random(num_rows) < 0.01, "Alarm", "OK"),
        }
    )
    _write(folder / "Kondensator.csv", condenser.to_csv(sep=";", index=False))
    pump = {"Druck [bar]": (110, 1.1), "Strom [A]": (340, 4.0), "Durchfluss [t/h]": (215, 2.0)}
    columns = {name: sensor("Speisepumpe", *sizes).round(2) for name, sizes in pump.items()}
    pd.DataFrame({"Zeitstempel": time, **columns}).to_excel(
        folder / "Speisepumpe.xlsx", index=False
    )
    _write(folder / "Notizen.txt", "Export von Hr. Meier, Oktober\n")
    return folder


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("cp1252"))
