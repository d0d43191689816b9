"""The 45 kinds of input that a new user tried, made small: what plants export, and what goes wrong.

Every input is a function of a folder that writes files there and returns what to pass as DATA. The
measurements are the same in all of them unless a function says otherwise: `VALUES`, of three
clients, one row per minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import fedgranger as fg

NUM_ROWS = 120
CLIENTS = ("boiler", "condenser", "turbine")
SENSORS = ("T", "p")
START = "2026-03-01 00:00:00"


def recording(num_rows: int = NUM_ROWS, num_sensors: int = 2, seed: int = 4) -> np.ndarray:
    """Measurements of one client that neither wander nor stand still, with three decimals."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((num_rows, num_sensors))
    out = noise.copy()
    for row in range(1, num_rows):
        out[row] = 0.4 * out[row - 1] + noise[row]
    return np.round(2000 + 100 * out, 3)


VALUES = {name: recording(seed=seed) for seed, name in enumerate(CLIENTS)}
TIMES = pd.date_range(START, periods=NUM_ROWS, freq="min")


def frame(name: str, times: pd.DatetimeIndex | None = TIMES) -> pd.DataFrame:
    out = pd.DataFrame(VALUES[name], columns=list(SENSORS))
    if times is not None:
        out.insert(0, "time", times)
    return out


def write_all(folder: Path, change: Callable[[str, pd.DataFrame], pd.DataFrame], **how) -> Path:
    """One CSV file per client, each frame changed first."""
    for name in CLIENTS:
        change(name, frame(name)).to_csv(folder / f"{name}.csv", index=False, **how)
    return folder


def write_text(folder: Path, change: Callable[[str], str], **how) -> Path:
    """The same, and then the text of each file changed."""
    for name in CLIENTS:
        text = frame(name).to_csv(index=False, lineterminator="\n", **how)
        (folder / f"{name}.csv").write_text(change(text), encoding="utf-8")
    return folder


def seconds(data: pd.DataFrame) -> np.ndarray:
    return data["time"].to_numpy().astype("datetime64[s]").astype(np.int64)


def as_stamps(pattern: str) -> Callable[[str, pd.DataFrame], pd.DataFrame]:
    return lambda _, data: data.assign(time=data["time"].dt.strftime(pattern))


def moved(
    offsets: dict[str, np.ndarray | pd.Timedelta],
) -> Callable[[str, pd.DataFrame], pd.DataFrame]:
    return lambda name, data: data.assign(time=data["time"] + offsets.get(name, pd.Timedelta(0)))


# ---------------------------------------------------------------- worked at once


def clean(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data)


def zones_mixed(folder: Path) -> Path:
    zones = {"boiler": "+00:00", "condenser": "+02:00", "turbine": "-05:00"}
    hours = {"boiler": 0, "condenser": 2, "turbine": -5}

    def change(name, data):
        local = data["time"] + pd.Timedelta(hours=hours[name])
        return data.assign(time=local.dt.strftime("%Y-%m-%dT%H:%M:%S") + zones[name])

    return write_all(folder, change)


def naive_and_zoned(folder: Path) -> Path:
    def change(name, data):
        end = "Z" if name == "boiler" else ""
        return data.assign(time=data["time"].dt.strftime("%Y-%m-%dT%H:%M:%S") + end)

    return write_all(folder, change)


def umlauts_and_spaces(folder: Path) -> Path:
    for name, title in zip(CLIENTS, ("Kühler 1", "Dampf turbine", "Pumpe ä"), strict=True):
        data = frame(name).rename(columns={"T": "Temp °C", "p": "Druck (bar)"})
        data.to_csv(folder / f"{title}.CSV", index=False)
    return folder


def byte_order_mark(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data, encoding="utf-8-sig")


def epoch_time(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(time=seconds(data)))


def no_time(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.drop(columns="time"))


def booleans(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(p=data["p"] > 2000))


def integers(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(p=data["p"].round().astype(int)))


def large_offset(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(p=data["p"] + 1e9))


def duplicate_column(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(p2=data["p"]))


def two_clients(folder: Path) -> Path:
    write_all(folder, lambda _, data: data)
    (folder / "turbine.csv").unlink()
    return folder


def many_sensors(folder: Path) -> Path:
    names = [f"s{k:03}" for k in range(200)]
    for seed, name in enumerate(CLIENTS):
        data = pd.DataFrame(recording(60, 200, seed), columns=names)
        data.insert(0, "time", TIMES[:60])
        data.to_csv(folder / f"{name}.csv", index=False)
    return folder


def many_sensors_with_holes(folder: Path) -> Path:
    """200 sensors that follow two states, 1 % of the samples missing: 13 % of rows are complete."""
    states = fg.simulate(3, 600, clients=CLIENTS, edges=[CLIENTS[:2]], sensor_dims=200, seed=1)[0]
    for seed, client in enumerate(states):
        values = np.round(client.values, 4)
        values[np.random.default_rng(seed).random(values.shape) < 0.01] = np.nan
        data = pd.DataFrame(values, columns=[f"s{k:03}" for k in range(200)])
        data.to_csv(folder / f"{client.name}.csv", index=False)
    return folder


def _local(start: str) -> pd.DatetimeIndex:
    return pd.date_range(start, periods=NUM_ROWS, freq="5min", tz="Europe/Berlin")


def spring_local(folder: Path) -> Path:
    times = _local("2026-03-29 00:00").tz_localize(None)
    return write_all(folder, lambda _, data: data.assign(time=times))


def zoned_saving_time(folder: Path) -> Path:
    times = _local("2026-10-25 00:00").map(lambda stamp: stamp.isoformat())
    return write_all(folder, lambda _, data: data.assign(time=times))


def event_stamps(folder: Path) -> Path:
    steps = np.random.default_rng(1).integers(1, 90, NUM_ROWS).cumsum()
    times = pd.Timestamp(START) + pd.to_timedelta(steps, "s")
    return write_all(folder, lambda _, data: data.assign(time=times))


def twenty_rows(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.head(20))


def many_rows(folder: Path) -> Path:
    """Of the million of the trial 20 000: blocks are read alike."""
    for seed, name in enumerate(CLIENTS):
        rng = np.random.default_rng(seed)
        times = pd.date_range(START, periods=20_000, freq="20ms")
        data = pd.DataFrame(rng.standard_normal((20_000, 2)).round(3), columns=list(SENSORS))
        data.insert(0, "time", times)
        data.to_csv(folder / f"{name}.csv", index=False)
    return folder


# ---------------------------------------------------------------- needed a second try


def stuck_sensor(folder: Path) -> Path:
    def change(name, data):
        return data.assign(p=data["p"].where(data.index < 40, 1.5)) if name == "boiler" else data

    return write_all(folder, change)


def empty_cells(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(p=data["p"].where(data.index % 50 != 7)))


def _wide() -> pd.DataFrame:
    out = pd.DataFrame({"time": TIMES})
    for k, name in enumerate(CLIENTS):
        for position, sensor in enumerate(SENSORS):
            out[f"P{k + 1}_{sensor}"] = VALUES[name][:, position]
    return out


def wide_table(folder: Path) -> Path:
    path = folder / "plant.csv"
    _wide().to_csv(path, index=False)
    split = {name: [f"P{k + 1}_{s}" for s in SENSORS] for k, name in enumerate(CLIENTS)}
    (folder / "clients.json").write_text(json.dumps(split))
    return path


def duplicate_stamp(folder: Path) -> Path:
    return write_all(folder, lambda _, data: pd.concat([data[:40], data[39:]]))


def unsorted_rows(folder: Path) -> Path:
    return write_all(folder, lambda _, data: pd.concat([data[60:], data[:60]]))


def index_column(folder: Path) -> Path:
    for name in CLIENTS:
        frame(name).to_csv(folder / f"{name}.csv")
    return folder


def trailing_comma(folder: Path) -> Path:
    return write_text(folder, lambda text: text.replace("\n", ",\n"))


def thousands_separator(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(p=data["p"].map("{:,.3f}".format)))


def bad_input_text(folder: Path) -> Path:
    def change(_, data):
        return data.assign(p=data["p"].astype(object).where(data.index % 60 != 7, "Bad Input"))

    return write_all(folder, change)


# ---------------------------------------------------------------- had to be edited by hand


def german(folder: Path) -> Path:
    return write_all(folder, as_stamps("%d.%m.%Y %H:%M"), sep=";", decimal=",")


def german_dates(folder: Path) -> Path:
    return write_all(folder, as_stamps("%d.%m.%Y %H:%M:%S"))


def us_dates(folder: Path) -> Path:
    def change(_, data):
        late = data["time"] + pd.Timedelta(days=19, hours=11)  # the 20th: no month
        return data.assign(time=late.dt.strftime("%m/%d/%Y %I:%M:%S %p"))

    return write_all(folder, change)


def workbooks(folder: Path) -> Path:
    for name in CLIENTS:
        frame(name).to_excel(folder / f"{name}.xlsx", index=False)
    return folder


def long_format(folder: Path) -> Path:
    path = folder / "historian.csv"
    data = _wide().melt("time", var_name="tag", value_name="value")
    data[["tag", "time", "value"]].to_csv(path, index=False)
    return path


def status_column(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.assign(status="Good"))


def preamble(folder: Path) -> Path:
    head = "Exported by DAS 4.2\nSite: North, hall 3\n\n"
    return write_text(folder, lambda text: head + text)


def unit_row(folder: Path) -> Path:
    return write_text(folder, lambda text: text.replace("\n", "\n-,degC,bar\n", 1))


def autumn_local(folder: Path) -> Path:
    times = _local("2026-10-25 00:00").tz_localize(None)
    return write_all(folder, lambda _, data: data.assign(time=times))


def seconds_apart(folder: Path) -> Path:
    """Three seconds are more than a tenth of the interval, 10 s here."""
    times = pd.date_range(START, periods=NUM_ROWS, freq="10s")
    late = {"turbine": pd.Timedelta(seconds=3)}

    def change(name, data):
        return data.assign(time=times + late.get(name, pd.Timedelta(0)))

    return write_all(folder, change)


def jittered(folder: Path) -> Path:
    """Milliseconds, at 10 rows per second, so that they are no small part of the interval."""
    rng = np.random.default_rng(5)
    times = pd.date_range(START, periods=NUM_ROWS, freq="100ms")

    def change(_, data):
        return data.assign(time=times + pd.to_timedelta(rng.integers(-19, 20, NUM_ROWS), "ms"))

    return write_all(folder, change)


def time_names(folder: Path) -> Path:
    titles = {"boiler": "Zeit", "condenser": "Time (UTC)", "turbine": "time"}
    return write_all(folder, lambda name, data: data.rename(columns={"time": titles[name]}))


def counter_sensor(folder: Path) -> Path:
    energy = np.cumsum(np.random.default_rng(3).integers(0, 5, NUM_ROWS))

    def change(name, data):
        return data.assign(energy_MWh=energy) if name == "boiler" else data

    return write_all(folder, change)


# ---------------------------------------------------------------- was wrong


def dead_time(folder: Path) -> Path:
    """Boiler drives turbine six rows later."""
    rng = np.random.default_rng(2)
    num_rows = 700
    states = {name: np.zeros(num_rows) for name in CLIENTS}
    for row in range(1, num_rows):
        for name in CLIENTS:
            states[name][row] = 0.5 * states[name][row - 1] + rng.standard_normal()
        if row >= 6:
            states["turbine"][row] += 0.8 * states["boiler"][row - 6]
    arrays = {
        name: state[:, None] * [1.0, 0.8, 1.2] + 0.3 * rng.standard_normal((num_rows, 3))
        for name, state in states.items()
    }
    fg.Panel.from_arrays(arrays).write(folder)
    return folder


def unknown_time_name(folder: Path) -> Path:
    def change(_, data):
        return data.assign(time=seconds(data)).rename(columns={"time": "unix_time"})

    return write_all(folder, change)


def mixed_kinds(folder: Path) -> Path:
    clean(folder)
    (folder / "turbine.csv").unlink()
    data = frame("turbine")
    data.to_excel(folder / "turbine.xlsx", index=False)
    data.to_csv(folder / "zipped.csv.gz", index=False)
    data.to_csv(folder / "tabs.tsv", index=False, sep="\t")
    data.to_csv(folder / "plain.txt", index=False)
    (folder / "remarks.txt").write_text("calibrated in May\n")
    (folder / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    return folder


def dead_sensor(folder: Path) -> Path:
    def change(name, data):
        return data.assign(p=data["p"].where(data.index < 10)) if name == "boiler" else data

    return write_all(folder, change)


def one_sensor_each(folder: Path) -> Path:
    return write_all(folder, lambda _, data: data.drop(columns="p"))
