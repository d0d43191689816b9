"""All parties of one run over loopback: with a log, a tap on the wire and a slow clock."""

from dataclasses import replace
from functools import partial

from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.agreed_options import FederationOptions, Plan, WatchOptions
from fedgranger.federation.coordinator import Coordinator
from fedgranger.federation.driving import drive
from fedgranger.federation.party import Party
from fedgranger.federation.policy import UNLIMITED, SitePolicy
from fedgranger.federation.preparation import seeded_preparation
from fedgranger.federation.questions import Site
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watcher import Watcher
from fedgranger.federation.watching import watch_protocol
from tests.federation.loopback import LoopbackEngine

OPEN = replace(SitePolicy(**UNLIMITED), share_sensors=False)
"""Sites that allow every option and any number of rounds, and keep their sensors to themselves."""


class Federation:
    """All parties of one run over loopback, with a log and a tap on the wire."""

    def __init__(
        self, panel, folder, config, wrap=lambda name, handle: handle, policy=OPEN, **options
    ):
        self.folder, self.log, self.wire, self.now, self.audit = folder, [], [], 0.0, []
        self.options = FederationOptions(config, **options)
        self.names, self.parties = panel.names, {}
        self.policy, self.wrap = policy, wrap
        self.news, self.alarms = {}, {}
        for client in panel:
            self.give(LocalSeries(client, panel.time))

    def give(self, series):
        """Let a party have these data."""
        name = series.client.name
        store = Store(DiskFiles(self.folder / name))
        site = Site(store, self.policy, b"s" * 32, lambda: self.now, self.log.append)
        alarms = self.alarms.setdefault(name, [])
        self.parties[name] = Party(
            series,
            site,
            seeded_preparation(self.options.config),
            audit=partial(self._note, name),
            watcher=Watcher(lambda: self.news[name], site, alarms.append),
        )

    def _note(self, name, event, **facts):
        self.audit.append((name, event, facts))

    def handlers(self):
        def tapped(name, handle):
            def call(payload):
                answer = handle(payload)
                self.wire.append((name, payload, answer))
                return answer

            return call

        return {
            name: tapped(name, self.wrap(name, party.handle))
            for name, party in self.parties.items()
        }

    def coordinator(self, nonce="n"):
        plan = Plan("run", self.names, self.options, nonce)
        store = Store(DiskFiles(self.folder / "server"))
        return Coordinator(plan, store, lambda: self.now, self.log.append)

    def watch(self, knowledge, options=None, nonce="w", engine=None):
        """Let every party watch its own new data, `self.news`."""
        plan = Plan("run", self.names, self.options, nonce)
        store = Store(DiskFiles(self.folder / "server"))
        asking = watch_protocol(knowledge, options or WatchOptions())
        self.server = Coordinator(plan, store, lambda: self.now, self.log.append, asking)
        engine = engine or LoopbackEngine(self.handlers())
        return drive(self.server, engine, pause=lambda _: None)

    def pass_time(self, seconds):
        self.now += seconds

    def run(self, coordinator=None, pause=lambda _: None):
        self.server = coordinator or self.coordinator()
        return drive(self.server, LoopbackEngine(self.handlers()), pause=pause)


def silent_after(calls, name):
    count = {"calls": 0}

    def wrap(client, handle):
        def call(payload):
            count["calls"] += client == name
            if client == name and count["calls"] > calls:
                return None
            return handle(payload)

        return call

    return wrap


class Ticking(LoopbackEngine):
    """Every exchange takes a second."""

    def __init__(self, federation):
        super().__init__(federation.handlers())
        self._federation = federation

    def exchange(self, requests, timeout):
        self._federation.now += 1.0
        return super().exchange(requests, timeout)
