"""The commands that join `fedgranger` when this package is installed."""

COMMANDS = {
    "datasets": (
        "fedgranger_research.cli.datasets",
        "Prepare public data sets; nothing is downloaded.",
    ),
    "study": ("fedgranger_research.cli.study", "Monte Carlo studies."),
    "reproduce": (
        "fedgranger_research.cli.reproduce",
        "The paper's figures and tables, made again.",
    ),
    "benchmark": (
        "fedgranger_research.cli.benchmark",
        "Compare methods on simulated data or on yours.",
    ),
}
"""By name, the module that defines the command and the sentence that the list shows."""
