"""What a site keeps of its normal operation, on its own disk; nothing of it is ever sent whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.client.own_normal import OwnNormal
from fedgranger.federation.codec import digest, pack
from fedgranger.federation.store import Store
from fedgranger.normal_files import monitor_from_arrays, monitor_to_arrays
from fedgranger.normal_operation import Season

RECORD = "normal"


class KeptNormal(NamedTuple):
    """What is normal at a site, and a name for it by its content.

    Attributes:
        own: what the client learned.
        identity: the same for the same content: other readings of the sensors have another.
    """

    own: OwnNormal
    identity: str


def keep_normal(store: Store, run: str, own: OwnNormal) -> None:
    """Write it to the disk, whole or not at all."""
    fields = monitor_to_arrays(own.monitor)
    texts = {name: value.tolist() for name, value in fields.items() if value.dtype.kind == "U"}
    numbers = {name: value for name, value in fields.items() if name not in texts}
    values = {
        "texts": texts,
        "season": None if own.season is None else own.season.to_mapping(),
        "interval": own.interval,
    }
    identity = digest(pack(values, numbers))
    store.save(f"{RECORD}.{run}", {**values, "identity": identity}, numbers)


def load_normal(store: Store, run: str) -> KeptNormal | None:
    """Read it; None when the site has not learned it in that run, or its disk has damaged it."""
    record = store.load(f"{RECORD}.{run}")
    if record is None:
        return None
    values, numbers = record
    texts = {name: np.array(value) for name, value in values["texts"].items()}
    season = None if values["season"] is None else Season.from_mapping(values["season"])
    own = OwnNormal(monitor_from_arrays({**numbers, **texts}), season, values["interval"])
    return KeptNormal(own, values["identity"])
