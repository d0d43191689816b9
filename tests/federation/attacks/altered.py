"""An altered party: a real kit, FLARE's own entry, and a hand inside that does what it is told.

    python -m tests.federation.attacks.altered client|server KIT
    python -m tests.federation.attacks.altered job ...          (started by an altered client)

Orders come over a private socket from the test (`orders.py`); the party behaves like an honest one
until then. Nothing of fedgranger's own entry or guard is used: an attacker would not.
"""

import importlib
import os
import sys
import threading
from multiprocessing.connection import Client

SOCKET = "FEDGRANGER_ATTACK_SOCKET"
MODULE = "tests.federation.attacks.altered"
JOB_MODULE = "nvflare.private.fed.app.client.worker_process"


def serve(role, hand, line=None):
    """Obey the test from now on, in a thread of its own."""
    line = line or Client(os.environ[SOCKET], "AF_UNIX")
    line.send(role)
    if line.recv() == "free":  # what the altered party waited for is over
        hand.free()

    def obey():
        while True:
            try:
                order, words, options = line.recv()
            except EOFError:
                return
            try:
                line.send((True, getattr(hand, order)(*words, **options)))
            except Exception as error:
                line.send((False, repr(error)))

    threading.Thread(target=obey, daemon=True).start()


class Hand:
    """What an altered parent process can do; the test calls its methods from afar."""

    def __init__(self, wire, party=None):
        self._wire, self._party = wire, party
        self.send_all, self.name = wire.send_all, wire.name

    def register(self, kind):
        """Register once more, as a `regular` client or a `relay`; the token gets that name."""
        from nvflare.private.fed.client import communicator

        true, party = communicator.ClientType, self._party
        communicator.ClientType = type("Claimed", (), {"REGULAR": kind})
        try:
            with party.engine.new_context() as context:
                project = party._get_project_name()
                got = party.communicator.client_registration(party.client_name, project, context)
        finally:
            communicator.ClientType = true
        if kind == "regular":  # the server knows the new one from now on, and forgets the old
            self._wire.tokens["old"] = self._wire.tokens["own"]
            self._wire.tokens["own"] = (party.client_name, *got)
            party.token, party.token_signature, party.ssid = got
        else:
            name, *before = self._wire.tokens["own"]
            self._wire.tokens[kind] = (name, *got)
            party.communicator.set_auth(name, *before)
        return sorted(self._wire.tokens)

    def peers(self):
        """The cells this one is connected to."""
        return sorted(self._wire.core.agents)

    def tokens(self):
        """By a word of the attacker's; see `register`."""
        return self._wire.tokens

    def free(self):
        """Nothing is held here."""


def run_client(kit):
    """FLARE's client, whose jobs are altered too."""
    from nvflare.app_common.job_launcher import process_launcher
    from nvflare.private.fed.app.client import client_train

    from fedgranger.flare.identity import role_of
    from tests.federation.attacks.wire import Wire

    make_agent, spawn = client_train.create_admin_agent, process_launcher.spawn_process

    def create_admin_agent(processors, party, engine):
        agent = make_agent(processors, party, engine)
        own = (party.client_name, party.token, party.token_signature, party.ssid)
        serve("client", Hand(Wire(party.cell, {"own": own}), party))
        return agent

    client_train.create_admin_agent = create_admin_agent
    process_launcher.spawn_process = lambda words, environment: spawn(
        _altered_job(words), environment
    )
    _enter(client_train, kit, "client", f"uid={role_of(kit)[1]}", "heart_beat_interval=4")


def _altered_job(words):
    """A job's command line with this module in place of whatever would run it."""
    start = words.index("-m") + 1
    end = next(k for k in range(start, len(words)) if words[k].startswith("-"))
    return [*words[:start], MODULE, "job", *words[end:]]


def run_server(kit):
    """FLARE's server without a policy of its own: everybody may do everything."""
    from nvflare.fuel.sec.authz import AuthorizationService
    from nvflare.private.fed.app.server import server_train
    from nvflare.private.fed.utils.app_authz import AppAuthzService

    from tests.federation.attacks.wire import Wire

    make_server = server_train.create_admin_server
    AuthorizationService.authorize = staticmethod(lambda _: (True, ""))
    AppAuthzService.validate_app = staticmethod(lambda _: ("", {}))

    def create_admin_server(services, **options):
        serve("server", Hand(Wire(services.cell, {"own": None})))
        return make_server(services, **options)

    server_train.create_admin_server = create_admin_server
    _enter(server_train, kit, "server")


def _enter(entry, kit, role, *party):
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    fixed = ["secure_train=true", "org=fedgranger", "config_folder=config"]
    sys.argv = [entry.__file__, "-m", str(kit), "-s", f"fed_{role}.json", "--set", *fixed, *party]
    arguments = entry.parse_arguments()
    sys.exit(MainProcessMonitor.run(entry.main, run_dir=str(kit), args=arguments))


def run_job():
    """FLARE's job process with an altered job object."""
    importlib.import_module("tests.federation.attacks.job").alter()
    worker = importlib.import_module(JOB_MODULE)
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    arguments = worker.parse_arguments()
    folder = os.path.join(arguments.workspace, arguments.job_id)
    sys.exit(MainProcessMonitor.run(worker.main, run_dir=folder, args=arguments))


if __name__ == "__main__":
    from pathlib import Path

    role = sys.argv.pop(1)
    if role == "job":
        run_job()
    else:
        {"client": run_client, "server": run_server}[role](Path(sys.argv[1]).resolve())
