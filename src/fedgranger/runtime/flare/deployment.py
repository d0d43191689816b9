"""Files in a kit that run its party locked in: a systemd unit, and a container with its settings.

The paths in them are places that an operator may change; each file says so.
"""

from __future__ import annotations

import ipaddress

__all__ = ["deployment_files"]

PROGRAM = "/opt/fedgranger/bin/fedgranger"
KITS = "/var/lib/fedgranger"
DATA = "/srv/fedgranger"
USER_NUMBER = 10_001
MEMORY = {"server": "8G", "client": "4G"}


def deployment_files(role: str, name: str, host: str, port: int) -> dict[str, str]:
    """The text of every deployment file of a server's or client's kit, by file name."""
    return {
        "fedgranger.service": _unit(role, name, host),
        "Containerfile": CONTAINER,
        ".dockerignore": "# the image needs nothing of this folder, least of all its keys\n*\n",
        "compose.yaml": _compose(role, name, port),
    }


def _unit(role: str, name: str, host: str) -> str:
    is_client = role == "client"
    kit = f"{KITS}/client-{name}" if is_client else f"{KITS}/{name}"
    data = f" --data {DATA}/{name}.csv" if is_client else ""
    who = f"client '{name}'" if is_client else "server"
    limits = (
        ", except its keys and policy; data are only read" if is_client else ", except its keys"
    )
    read_only = f"ReadOnlyPaths={kit}/startup" + (
        f" -{kit}/policy.toml {DATA}" if is_client else ""
    )
    network = _network(host) if is_client else SERVER_NETWORK
    return f"""\
# systemd unit of fedgranger {who}; change the paths to yours.
#   useradd --system --shell /usr/sbin/nologin fedgranger
#   copy this kit to {kit}; chown -R fedgranger: {kit}
#   copy this file to /etc/systemd/system; systemctl enable --now fedgranger
[Unit]
Description=fedgranger federation: {name}
Wants=network-online.target
After=network-online.target

[Service]
User=fedgranger
Group=fedgranger
WorkingDirectory={kit}
ExecStart={PROGRAM} federation start {kit}{data}
Restart=always
RestartSec=10
# Code 2 is a refusal in a sentence (ended certificate, unreadable data): starting again is no help.
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=30

# Files: the kit can be written{limits}.
UMask=0077
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ReadWritePaths={kit}
{read_only}

# Network.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
{network}
# Rights: none beyond a plain user's.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

# Size.
MemoryMax={MEMORY[role]}
TasksMax=1024

[Install]
WantedBy=multi-user.target
"""


SERVER_NETWORK = """\
# Clients come from anywhere. To let in only some networks, name them and take the marks away:
#IPAddressDeny=any
#IPAddressAllow=localhost 192.0.2.0/24
"""


def _network(host: str) -> str:
    """Nothing but the server, where its address is known; a unit cannot name a host."""
    try:
        allowed = str(ipaddress.ip_address(host))
    except ValueError:
        if host != "localhost":
            return f"""\
# Nothing but the server and this machine: write the address of {host} (and of your name
# server) at the end of the second line and take both marks away.
#IPAddressDeny=any
#IPAddressAllow=localhost
"""
        allowed = ""
    return f"""\
# Nothing but the server and this machine.
IPAddressDeny=any
IPAddressAllow={f"localhost {allowed}".rstrip()}
"""


CONTAINER = f"""\
# Image of a fedgranger party: a plain user, no kit and no data inside.
FROM python:3.11-slim
RUN pip install --no-cache-dir 'fedgranger[flare]'
USER {USER_NUMBER}:{USER_NUMBER}
ENTRYPOINT ["fedgranger", "federation", "start", "/kit"]
"""


def _compose(role: str, name: str, port: int) -> str:
    is_client = role == "client"
    party = f"client-{name}" if is_client else name
    command = f'    command: ["--data", "/data/{name}.csv"]\n' if is_client else ""
    data = f"      - {DATA}:/data:ro  # the folder of {name}.csv\n" if is_client else ""
    policy = "      - ./policy.toml:/kit/policy.toml:ro\n" if is_client else ""
    ports = (
        "    # No port is open. A container cannot limit whom it calls: let the host's firewall\n"
        f"    # allow it the server's port {port} only.\n"
        if is_client
        else f'    ports: ["{port}:{port}"]\n'
    )
    return f"""\
# Container of this party, started in this folder with: docker compose up --build --detach
# The folder must belong to the container's user: chown -R {USER_NUMBER}:{USER_NUMBER} .
services:
  fedgranger:
    container_name: fedgranger-{party}
    build: {{context: ., dockerfile: Containerfile}}
{command}    user: "{USER_NUMBER}:{USER_NUMBER}"
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: on-failure:10
    mem_limit: {MEMORY[role].lower()}
    pids_limit: 1024
    init: true
    stop_grace_period: 30s
    healthcheck:
      test: ["CMD", "fedgranger", "federation", "health", "/kit"]
      interval: 60s
      timeout: 20s
      start_period: 60s
    tmpfs: ["/tmp:mode=1777,size=512m"]
    volumes:
      - .:/kit
      - ./startup:/kit/startup:ro
{policy}{data}{ports}"""
