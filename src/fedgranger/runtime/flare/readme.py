"""The README in every party's kit: what to do, and what leaves the site."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["readme"]

INSTALL = "pip install 'fedgranger[flare]'"

LEAVES = """\
## What leaves your site

Only what `fedgranger/messages.py` lists, over mutual TLS:

- once: a p x p matrix and one number on your states, their error covariance, the first and last
  time stamp, the sampling interval, your clock, the version of fedgranger;
- every round: your filtered and corrected states (p numbers each per time step), a flag;
- for the edge tests: your least-squares states (p numbers per time step), a flag.

No message holds measurements, sensor names, file names or your local model. p is usually 1 to 4.
But the server can compute your measurements from several runs, and an altered party of this
federation can read your files (docs/security.md): take part only with parties who may have them.
"""


def readme(role: str, name: str, host: str, port: int, clients: Sequence[str]) -> str:
    """Write the text for one party."""
    who = ", ".join(clients)
    if role == "server":
        return f"""# fedgranger federation: the server

Parties: {who}. They connect to {host}, port {port}; open it in your firewall.

1. Copy this folder to {host}. It holds a private key: keep it readable by you only.
2. `{INSTALL}`
3. `fedgranger federation start FOLDER`

The server is sent what `fedgranger/messages.py` lists: states of every client.
Its records are in `fedgranger-state`; a restart goes on from there.
"""
    if role == "client":
        return f"""# fedgranger federation: client '{name}'

Server: {host}, port {port} (outgoing connections only). Parties: {who}.

1. Copy this folder to your site. It holds a private key: keep it readable by you only.
2. `{INSTALL}`
3. `fedgranger federation start FOLDER --data YOUR.csv`

YOUR.csv (or .parquet) has one column per sensor and a time column. Its path stays in
`local/fedgranger.json` here. What a run found is written to `fedgranger-state/edges.csv`.

{LEAVES}"""
    return f"""# fedgranger federation: who starts runs

Parties: {who}; server {host}, port {port}.

1. `{INSTALL}`
2. `fedgranger federation check FOLDER`
3. `fedgranger federation run FOLDER --out RUN`

This folder holds the key that may start runs: whoever has it can act at every client. Keep it
readable by you only.
"""
