"""The development data (Parquet, float32) written as the publishers' files.

The loaders read what users download. For `fedgranger reproduce table root-cause --data DATA` and
`figure hai-stress` on the development data:

    python -m tests.published_files ../shared/data DATA

Numbers are written with the fewest digits that float32 needs, which gives back the publishers'
decimals.
"""

import os
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as arrow_parquet
import pytest

from fedgranger_research.datasets import batadal, smd, tep

ROOT = Path(__file__).parents[1]
SLOW_HAI = "normal_train1_every100s.parquet"
FAST_HAI = "normal_train1_first58min_1hz.parquet"


def development_data():
    """The folder of the development data; without it the test is skipped."""
    given = os.environ.get("FEDGRANGER_TEST_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not (folder / "README.md").is_file():
        pytest.skip("no real data: neither FEDGRANGER_TEST_DATA nor ../shared/data is there")
    return folder


def write_tep(source, folder):
    """44 .dat files; `d00.dat` is transposed, as published."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, suffix in (("train_normal", ""), ("train_faulty", ""), ("test", "_te")):
        for number, rows in pd.read_parquet(source / f"{split}.parquet").groupby("run"):
            values = rows[list(tep.COLUMNS)].to_numpy()
            values = values.T if split == "train_normal" else values
            lines = ("  ".join(map(str, row)) for row in values)
            path = folder / f"d{number:02d}{suffix}.dat"
            path.write_text("\n".join(lines) + "\n")


def smd_machines(source):
    return pd.read_parquet(source / "train.parquet", columns=["machine"])["machine"].unique()


def write_smd(source, folder, machine):
    """The four text files of one machine, below ServerMachineDataset."""
    root = folder / "ServerMachineDataset"
    for name in smd.FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        table = arrow_parquet.read_table(
            source / f"{name}.parquet", filters=[("machine", "==", machine)]
        )
        _write_plain(table.select(smd.COLUMNS), root / name / f"{machine}.txt")
        if name == "test":
            _write_plain(table.select(["label"]), root / "test_label" / f"{machine}.txt")
    causes = pd.read_csv(source / "root_causes.csv")
    lines = []
    for row in causes[causes["machine"] == machine].to_dict("records"):
        metrics = ",".join(str(smd.COLUMNS.index(m) + 1) for m in row["metrics"].split(";"))
        lines.append(f"{row['start']}-{row['end'] + 1}:{metrics}\n")
    (root / "interpretation_label" / f"{machine}.txt").write_text("".join(lines))


def write_batadal(source, folder):
    """Three csv files of the labelled release."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"train": "train_normal", "train_attacks": "train_attacks", "test": "test"}
    for part in batadal.PARTS:
        table = pd.read_parquet(source / f"{names[part.split]}.parquet")
        table = table.assign(DATETIME=table["DATETIME"].dt.strftime("%d/%m/%y %H"))
        _write(table, folder / part.file_names[0], ",")


def write_hai(source, folder):
    """`train1.csv` of 20.07 from one of the two recordings of normal operation."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.read_parquet(source)
    table = table.assign(time=table["time"].dt.strftime("%Y-%m-%d %H:%M:%S"))
    _write(table, folder / "train1.csv", ";")


def _write(table, path, delimiter):
    options = arrow_csv.WriteOptions(delimiter=delimiter, quoting_style="none")
    arrow_csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), path, options)


def _write_plain(table, path):
    options = arrow_csv.WriteOptions(include_header=False, quoting_style="none")
    arrow_csv.write_csv(table, path, options)


def main(source, folder):
    write_tep(source / "tep", folder / "tep")
    write_batadal(source / "batadal", folder / "batadal")
    write_hai(source / "hai" / SLOW_HAI, folder / "hai")
    for machine in smd_machines(source / "smd"):
        write_smd(source / "smd", folder / "smd", machine)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
