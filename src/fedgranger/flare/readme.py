"""The README in every party's kit: what to do, and what leaves the site."""

from __future__ import annotations

from collections.abc import Sequence

INSTALL = "pip install 'fedgranger[flare]'"

KEY = """\
## 1. Your key

It is made here and never leaves this folder.

1. `{install}`
2. `fedgranger federation request FOLDER` writes `request.csr` and shows two fingerprints.
3. Send `request.csr` to the organiser. Compare both fingerprints by telephone: of your request, and
   of the federation.
4. `fedgranger federation accept FOLDER CERTIFICATE` takes in what comes back.

Before the certificate ends (`start` warns for 30 days): `fedgranger federation renew FOLDER`, then
3 and 4 again. The old one works until the new one is accepted; restart this party then, nobody
else has to. If somebody else may have read this folder, tell the organiser at once: the
certificate is revoked, and a new request is signed.

Keep this folder readable by you only; `start` refuses otherwise.
"""

LOCKED = """\
`fedgranger.service` runs it under systemd, `compose.yaml` and `Containerfile` in a container: a
plain user, no rights{data}, no more network than it needs. Read the comments, change the paths.
"""

LEAVES = """\
## What leaves your site

Only what `fedgranger/messages.py` lists, over mutual TLS, and only as far as `policy.toml` here
allows: nobody else can change that file.

- `fedgranger federation preview FOLDER --data YOUR.csv` shows, before you take part, what would
  leave and how well each of your sensors could be predicted from it.
- `fedgranger federation log FOLDER` shows all that left, and what was refused.

No message holds measurements, sensor names, file names or your local model; but states are made of
your measurements, and the server holds p of them per time step. Read docs/security.md.
"""


def readme(role: str, name: str, host: str, port: int, clients: Sequence[str]) -> str:
    """Write the text for one party."""
    who = ", ".join(clients)
    key = KEY.format(install=INSTALL)
    if role == "server":
        return f"""# fedgranger federation: the server

Parties: {who}. They connect to {host}, port {port}; open it in your firewall.

{key}
## 2. Run it

`fedgranger federation start FOLDER`

{LOCKED.format(data="")}
The server is sent what `fedgranger/messages.py` lists: states of every client.
Its records are in `fedgranger-state`; a restart goes on from there.

When the organiser sends `revoked.crl`: `fedgranger federation accept FOLDER revoked.crl`.
Connections of the parties in it end within seconds.
"""
    if role == "client":
        return f"""# fedgranger federation: client '{name}'

Server: {host}, port {port} (outgoing connections only). Parties: {who}.

{key}
## 2. Run it

`fedgranger federation start FOLDER --data YOUR.csv`

YOUR.csv (or .parquet) has one column per sensor and a time column. Its path stays here.
What a run found is written to `fedgranger-state/edges.csv`.

With `--watch NEW.csv` and `watch = true` in `policy.toml` new rows are watched for root causes;
alarms are written to `fedgranger-state/alarms.json` and the log.

{LOCKED.format(data=", data that can only be read")}
{LEAVES}"""
    return f"""# fedgranger federation: who starts runs

Parties: {who}; server {host}, port {port}.

{key}
## 2. Use it

1. `fedgranger federation check FOLDER`
2. `fedgranger federation run FOLDER --out RUN`
3. `fedgranger federation watch FOLDER RUN`: new data, who started an anomaly

This folder holds the key that may start runs. When a client is added or revoked the organiser sends
`members.json`: `fedgranger federation accept FOLDER members.json`.
"""
