"""Made files in the format of every data set's publisher."""

import numpy as np
import pandas as pd

from fedgranger_research.datasets import batadal, hai_files, smd


def smooth(rng, num_rows, num_columns):
    """Rounded autoregressive columns, so that text and float32 can hold them."""
    noise = rng.standard_normal((num_rows, num_columns))
    for t in range(1, num_rows):
        noise[t] += 0.7 * noise[t - 1]
    return np.round(noise, 4).astype(np.float32).astype(np.float64)


# ---------------------------------------------------------------- TEP


def write_tep(folder, rng):
    """Write the 44 .dat files; return name -> (time, column) matrix."""
    folder.mkdir(parents=True)
    matrices = {}
    for k in range(22):
        for suffix, rows in (("", 480 if k else 500), ("_te", 960)):
            values = np.round(rng.uniform(1, 100, (rows, 52)), 3)
            matrices[f"d{k:02d}{suffix}"] = values
            shown = values.T if (k, suffix) == (0, "") else values
            path = folder / f"d{k:02d}{suffix}.dat"
            np.savetxt(path, shown, fmt="  %.7e", delimiter="")
    return matrices


# ---------------------------------------------------------------- SMD

CONSTANT = ("total_mem", "in_errs", "udp_rcv_buf_errs")
SEGMENTS = {
    "machine-1-1": "10-20:1,2,9\n40-45:9,13\n",
    "machine-3-10": "0-5:23,24,25\n30-31:5,18\n",
}


def write_smd(folder, rng, machines=tuple(SEGMENTS)):
    """Write ServerMachineDataset; return machine -> (train, test, labels)."""
    root = folder / "ServerMachineDataset"
    for name in smd.FOLDERS:
        (root / name).mkdir(parents=True)
    made = {}
    for machine in machines:
        train, test = (rng.uniform(0, 1, (rows, 38)).round(6) for rows in (150, 120))
        train[:, [smd.COLUMNS.index(name) for name in CONSTANT]] = 0.25
        labels = np.zeros(120, np.int8)
        for line in SEGMENTS[machine].split():
            start, stop = (int(k) for k in line.split(":")[0].split("-"))
            labels[start:stop] = 1
        np.savetxt(root / "train" / f"{machine}.txt", train, fmt="%.6f", delimiter=",")
        np.savetxt(root / "test" / f"{machine}.txt", test, fmt="%.6f", delimiter=",")
        np.savetxt(root / "test_label" / f"{machine}.txt", labels, fmt="%d")
        (root / "interpretation_label" / f"{machine}.txt").write_text(SEGMENTS[machine])
        made[machine] = (train, test, labels)
    return made


# ---------------------------------------------------------------- BATADAL


def make_batadal(rng):
    """Return part name -> frame with parsed times and complete labels."""
    frames = {}
    for part in batadal.PARTS:
        hours = np.datetime64(part.start, "h") + np.arange(part.num_rows)
        values = rng.uniform(0, 50, (part.num_rows, 43)).round(2)
        if part.split == "train":
            values[:, batadal.COLUMNS.index("S_PU1")] = 1.0
        frame = pd.DataFrame(values, columns=list(batadal.COLUMNS))
        frame.insert(0, "DATETIME", hours.astype("datetime64[us]"))
        frame["ATT_FLAG"] = 0
        for attack in batadal.ATTACKS:
            inside = (hours >= np.datetime64(attack.start)) & (hours <= np.datetime64(attack.end))
            frame.loc[inside, "ATT_FLAG"] = 1
        frames[part.name] = frame
    return frames


def write_batadal(folder, frames, *, competition=False, prefix=""):
    """Write the authors' csv files, or those of the competition (blanks, -999, no test flags)."""
    folder.mkdir(parents=True)
    for name, frame in frames.items():
        text = frame.assign(DATETIME=frame["DATETIME"].dt.strftime("%d/%m/%y %H"))
        if competition and name == "dataset04":
            text["ATT_FLAG"] = text["ATT_FLAG"].replace(0, -999)
            text.columns = [f" {column}" if k else column for k, column in enumerate(text)]
        if competition and name == "test_dataset":
            text = text.drop(columns="ATT_FLAG")
        text.to_csv(folder / f"{prefix}{name}.csv", index=False)


# ---------------------------------------------------------------- HAI


def hai_tags(version):
    counts = hai_files.TAG_COUNTS[version]
    tags = [f"P{k + 1}_T{j:02d}" for k in range(3) for j in range(counts[k])]
    if version == "23.05":  # tags of the boiler's controller, at the end of the file
        tags = [tag for tag in tags if tag not in [f"P1_T{j}" for j in range(37, 44)]]
    named = ["P4_LD", "P4_ST_PO", "P4_HT_PO"]
    tags += named + [f"P4_ST_T{j:02d}" for j in range(counts[3] - len(named))]
    controller = [f"x1001_{j:02d}_SETPOINT_OUT" for j in range(7)]
    return tags + controller if version == "23.05" else tags


def make_hai(version, rng, *, train_attacks=(), train_shift=0):
    """Return file stem -> frame: two training and two test files with one attack each."""
    frames = {}
    spans = {"train1": (0, 300), "train2": (1000, 250), "test1": (5000, 200), "test2": (6000, 150)}
    attacked = {"test1": [("P1",), (20, 29)], "test2": [("P2", "P3"), (50, 69)]}
    for name, (start, rows) in spans.items():
        tags = hai_tags(version)
        frame = pd.DataFrame(smooth(rng, rows, len(tags)), columns=tags)
        frame["P2_T00"] = 7.0
        start += train_shift if name == "train2" else 0
        stamps = np.datetime64("2019-09-11T20:00:00", "s") + np.arange(start, start + rows)
        frame.insert(0, "time", pd.Series(stamps).dt.strftime("%Y-%m-%d %H:%M:%S"))
        for label in ("attack", "attack_P1", "attack_P2", "attack_P3"):
            frame[label] = 0
        if name in attacked:
            processes, (first, last) = attacked[name]
            for label in ("attack", *(f"attack_{process}" for process in processes)):
                frame.loc[first:last, label] = 1
        if name == "train2":
            frame.loc[list(train_attacks), ["attack", "attack_P1"]] = 1
        frames[name] = frame
    return frames


def write_hai(folder, frames, version, *, packed=False):
    folder.mkdir(parents=True)
    suffix = ".csv.gz" if packed else ".csv"
    for name, frame in frames.items():
        table, delimiter, stem = frame, ",", name
        if version == "20.07":
            delimiter = ";"
        if version in ("22.04", "23.05"):
            table = table.drop(columns=["attack_P1", "attack_P2", "attack_P3"])
            table = table.rename(columns={"time": "timestamp", "attack": "Attack"})
        if version == "23.05":
            stem = f"hai-{name}"
            if name.startswith("test"):
                labels = table[["timestamp", "Attack"]].rename(columns={"Attack": "label"})
                labels.to_csv(folder / f"label-{name}.csv", index=False)
            table = table.drop(columns="Attack")
        table.to_csv(folder / f"{stem}{suffix}", index=False, sep=delimiter)
