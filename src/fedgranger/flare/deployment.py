"""Files in a kit that run its party locked in: a systemd unit, and a container with its settings.

The paths in them are places that an operator may change; each file says so.
"""

from __future__ import annotations

import ipaddress

PROGRAM = "/opt/fedgranger/bin/fedgranger"
KITS = "/var/lib/fedgranger"
DATA = "/srv/fedgranger"
USER_NUMBER = 10_001
GATE, GATE_NETWORK = "172.30.253.2", "172.30.253.0/29"
MEMORY = {"server": "8G", "client": "4G"}


def deployment_files(role: str, name: str, host: str, port: int) -> dict[str, str]:
    """The text of every deployment file of a server's or client's kit, by file name."""
    return {
        "fedgranger.service": _unit(role, name, host),
        "Containerfile": CONTAINER,
        ".dockerignore": "# the image needs nothing of this folder, least of all its keys\n*\n",
        "compose.yaml": _compose(role, name, host, port),
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
    if host != "localhost" and not _is_address(host):
        return f"""\
# Nothing but the server and this machine: write the address of {host} (and of your name
# server) at the end of the second line and take both marks away.
#IPAddressDeny=any
#IPAddressAllow=localhost
"""
    allowed = "localhost" if host == "localhost" else f"localhost {host}"
    return f"""\
# Nothing but the server and this machine.
IPAddressDeny=any
IPAddressAllow={allowed}
"""


CONTAINER = f"""\
# Image of a fedgranger party: a plain user, no kit and no data inside.
FROM python:3.11-slim
RUN pip install --no-cache-dir 'fedgranger[flare]'
USER {USER_NUMBER}:{USER_NUMBER}
ENTRYPOINT ["fedgranger", "federation", "start", "/kit"]
"""


def _compose(role: str, name: str, host: str, port: int) -> str:
    is_client = role == "client"
    party = f"client-{name}" if is_client else name
    command = f'    command: ["--data", "/data/{name}.csv"]\n' if is_client else ""
    data = f"      - {DATA}:/data:ro  # the folder of {name}.csv\n" if is_client else ""
    policy = "      - ./policy.toml:/kit/policy.toml:ro\n" if is_client else ""
    ports = _gate(host, port) if is_client else f'    ports: ["{port}:{port}"]\n'
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


def _gate(host: str, port: int) -> str:
    """No port is open, and the only way out leads to the server: a second container passes it on.

    TLS goes through it from end to end. A client that was told an address instead of a name calls
    that address itself, so there it takes a firewall.
    """
    if host == "localhost" or _is_address(host):
        return (
            "    # No port is open. This file cannot limit whom the container calls: let the\n"
            f"    # host's firewall allow it the server's port {port} only.\n"
        )
    return f"""\
    networks: [inside]
    extra_hosts: ["{host}:{GATE}"]
    depends_on: [gate]
  gate:  # the only way out: to the server, nowhere else
    image: alpine/socat:1.8.0.3
    command: ["tcp-listen:{port},fork,reuseaddr", "tcp-connect:{host}:{port}"]
    user: "{USER_NUMBER}:{USER_NUMBER}"
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: unless-stopped
    networks:
      inside: {{ipv4_address: {GATE}}}
      outside: {{}}
networks:
  inside:  # another range if this one is taken, here and above
    internal: true
    ipam: {{config: [{{subnet: {GATE_NETWORK}}}]}}
  outside: {{}}
"""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
