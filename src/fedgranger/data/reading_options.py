"""How measurements are read, the same for a folder of clients and for one client at its site."""

from __future__ import annotations

from dataclasses import dataclass

from fedgranger.option_fields import Options, choice, text


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Options):
    """How to read the data; a site names its sensors without the client."""

    subject = "data"
    time_column: str = text("auto", 'name of the time column, "auto" or "none"')
    missing: str = choice(
        "error",
        ("error", "mask"),
        '"error", or "mask" to treat empty cells and codes such as -9999 as missing samples',
    )
    constant: str = choice(
        "error",
        ("error", "drop", "keep"),
        '"error", "drop" to leave out sensors that never change, or "keep"',
    )
    difference: str = text(
        "auto",
        'sensors whose change per row is used: "auto" for those that count or wander, "none", or '
        'client.sensor,client.sensor (at a site sensor,sensor); "auto,client.sensor" for both',
    )
    leave_out: str = text(
        "", "sensors that are not used: client.sensor,client.sensor (at a site sensor,sensor)"
    )
    suspect: str = choice(
        "error",
        ("error", "keep"),
        '"error" refuses clocks, row numbers and codes for missing samples; "keep" uses them as '
        "measured",
    )


def as_measured(time_column: str) -> ReadingOptions:
    """For new data, which are not judged: a run's monitors treat them like its training data."""
    return ReadingOptions(
        time_column=time_column,
        missing="mask",
        constant="keep",
        difference="none",
        suspect="keep",
    )
