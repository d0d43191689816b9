"""A seeded world for the parties of a run: a bad network, bad disks, crashes, and virtual time.

Everything that happens follows from one seed, so a failing schedule can be replayed. The parties
are the real ones (`Coordinator`, `Party`, `Store`); only bytes, files and seconds are simulated.
"""

import contextlib
import errno
import heapq
import warnings
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

import fedgranger as fg
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.agreed_options import FederationOptions, Plan, WatchOptions
from fedgranger.federation.codec import decode
from fedgranger.federation.coordinator import Coordinator
from fedgranger.federation.driving import drive
from fedgranger.federation.party import Party
from fedgranger.federation.policy import UNLIMITED, SitePolicy
from fedgranger.federation.preparation import seeded_preparation
from fedgranger.federation.protocol import RunStopped, server_protocol
from fedgranger.federation.questions import Site
from fedgranger.federation.release_ledger import ReleaseLedger
from fedgranger.federation.store import Store
from fedgranger.federation.watch_records import keep_normal, load_normal
from fedgranger.federation.watcher import Watcher
from fedgranger.federation.watching import watch_protocol
from fedgranger.flare.settings import with_alarm
from fedgranger.rca.alarms import knowledge_of
from fedgranger.rca.new_data import require_normal
from tests.federation.attacker import Memory


class Crash(BaseException):  # not an Exception: nothing in a party may catch it
    """The process of a party dies here."""


@dataclass
class Faults:
    """Chances per event; all faults stop once `budget` of them have happened."""

    drop: float = 0.1
    repeat: float = 0.1
    slow: float = 0.2
    crash: float = 0.03
    full_disk: float = 0.02
    budget: int = 30


@dataclass
class Disk:
    """Files of one party. What was not flushed may be lost or torn by a crash."""

    world: "World"
    seen: dict = field(default_factory=dict)
    safe: dict = field(default_factory=dict)
    renames: list = field(default_factory=list)

    def read(self, name):
        return self.seen.get(name)

    def write(self, name, content):
        if self.world.happens("full_disk"):
            raise OSError(errno.ENOSPC, "No space left on device")
        self.seen[name] = content
        self.world.maybe_crash()

    def flush(self, name):
        self.world.maybe_crash()
        self.safe[name] = self.seen[name]

    def rename(self, source, target):
        self.world.maybe_crash()
        self.seen[target] = self.seen.pop(source)
        self.renames.append((source, target))
        self.world.maybe_crash()

    def locked(self):
        return contextlib.nullcontext()

    def flush_folder(self):
        self.world.maybe_crash()
        self._apply_renames(len(self.renames))
        self.world.maybe_crash()

    def _apply_renames(self, count):
        for source, target in self.renames[:count]:
            if source in self.safe:
                self.safe[target] = self.safe.pop(source)
            elif target in self.seen:  # renamed before its content was flushed: torn
                content = self.seen[target]
                self.safe[target] = content[: self.world.rng.integers(len(content) + 1)]
        self.renames = self.renames[count:]

    def crash(self):
        """Keep what was flushed, some of the renames, and torn pieces of the rest."""
        self._apply_renames(int(self.world.rng.integers(len(self.renames) + 1)))
        self.renames = []
        for name, content in self.seen.items():
            if name not in self.safe and name.endswith(".new"):
                self.safe[name] = content[: self.world.rng.integers(len(content) + 1)]
        self.seen = dict(self.safe)


class World:
    """Parties, network and time of one schedule."""

    def __init__(self, seed, case, faults):
        self.rng = np.random.default_rng(seed)
        self.case, self.faults = case, faults
        self.now, self.happened, self.order = 0.0, [], 0
        self.queue = []
        self.server_disk = Disk(self)
        self.disks = {name: Disk(self) for name in case.names}
        self.parties = dict.fromkeys(case.names)
        self.down_until = dict.fromkeys(case.names, 0.0)
        self.starts, self.asked, self.server = 0, 0, None
        self.told = {name: [] for name in case.names}  # survives crashes, like a file
        case.fill(self.disks)

    def hear(self, line):
        """Disks never lose a confirmed round: a start goes on at most one round before the last."""
        if "common time steps" in line:
            resumed = 0 if line.endswith("starting") else int(line.split()[-1])
            assert resumed >= self.asked - 1, f"back from {self.asked} to {resumed}"

    def happens(self, what):
        if len(self.happened) >= self.faults.budget:
            return False
        found = self.rng.random() < getattr(self.faults, what)
        if found:
            self.happened.append((round(self.now, 3), what))
        return found

    def maybe_crash(self):
        if self.happens("crash"):
            raise Crash

    def pass_time(self, seconds):
        self.now += seconds

    def _later(self, what, *content):
        delay = self.rng.exponential(5.0) if self.happens("slow") else self.rng.exponential(0.05)
        self.order += 1
        heapq.heappush(self.queue, (self.now + delay, self.order, what, content))

    def _carry(self, what, *content):
        if self.happens("drop"):
            return
        self._later(what, *content)
        if self.happens("repeat"):
            self._later(what, *content)

    def exchange(self, requests, timeout):
        """The engine: send, then let time pass."""
        if self.server is not None and self.server.phase == "step":
            self.asked = max(self.asked, self.server.round_index)
        self.maybe_crash()
        for client, payload in requests.items():
            self._carry("request", client, payload)
        until, answers, missing = self.now + min(timeout, 1.0), [], set(requests)
        while self.queue and self.queue[0][0] <= until and missing:
            self.now, _, what, (client, payload) = heapq.heappop(self.queue)
            if what == "request":
                self._handle(client, payload)
            else:
                answers.append((client, payload))
                missing.discard(client)
        if missing:
            self.now = until
        return answers

    def _handle(self, client, payload):
        if self.now < self.down_until[client]:
            return
        if self.parties[client] is None:
            told = self.told[client]
            self.parties[client] = self.case.party(
                client, self.disks[client], lambda: self.now, told
            )
        try:
            answer = self.parties[client].handle(payload)
            self.maybe_crash()
        except Crash:
            self.disks[client].crash()
            self.parties[client] = None
            self.down_until[client] = self.now + self.rng.exponential(2.0)
            return
        self._carry("answer", client, answer)

    def run(self):
        """Start the server as often as it takes; return what it found and how it stopped."""
        stops = []
        while True:
            self.starts += 1
            assert self.starts < 200, f"no end: {self.happened}"
            plan = self.case.plan(f"start {self.starts}")
            try:
                store = Store(self.server_disk)
                self.server = Coordinator(
                    plan, store, lambda: self.now, self.hear, self.case.protocol
                )
                return drive(self.server, self, timeout=1.0, pause=self.pass_time), stops
            except Crash:
                self.server_disk.crash()
                self.now += self.rng.exponential(2.0)
            except (RunStopped, OSError) as stop:
                stops.append(str(stop))
                self.now += 10.0


class Case:
    """Data and options of a small run; what is prepared from them is kept, because it is pure."""

    protocol = staticmethod(server_protocol)

    def __init__(self, config, num_clients=2, num_steps=40, **options):
        self.options = FederationOptions(config, **options)
        self.panel = fg.simulate(num_clients, num_steps, sensor_dims=3, state_dims=1, seed=5)[0]
        self.names = self.panel.names
        self.prepare = cache(
            lambda name, grid: seeded_preparation(config)(
                self.series(name), grid, self.options.for_client(name), None, None
            )
        )
        self.reference = self.undisturbed()

    def series(self, name):
        return LocalSeries(self.panel[name], self.panel.time)

    def fill(self, disks):
        """Nothing is on the disks when a run begins."""

    def party(self, name, disk, clock, told):
        return Party(
            self.series(name),
            Site(Store(disk), SitePolicy(**UNLIMITED), b"s" * 32, clock),
            lambda series, grid, *_: self.prepare(series.client.name, grid),
        )

    def plan(self, nonce):
        return Plan("run", self.names, self.options, nonce)

    def undisturbed(self):
        world = World(0, self, Faults(budget=0))
        found, stops = world.run()
        assert not stops
        self.kept = self.left_at_sites(world)
        return found

    def left_at_sites(self, world):
        """What every site keeps of its normal operation."""
        kept = {name: load_normal(Store(disk), "run") for name, disk in world.disks.items()}
        charged = {name: charges(disk) for name, disk in world.disks.items()}
        return {name: (own and own.identity, charged[name]) for name, own in kept.items()}

    def is_same(self, found, world):
        """Whether a run found what the undisturbed one did, and left the same at the sites."""
        wanted, granger = self.reference, found.training.granger
        same = granger is None or np.array_equal(granger, wanted.training.granger)
        same = same and found.training.distance == wanted.training.distance
        if wanted.inference is not None:
            same = same and found.inference.edges.equals(wanted.inference.edges)
        if wanted.reference is not None:
            pairs = zip(found.reference, wanted.reference, strict=True)
            same = same and all(np.array_equal(one, other) for one, other in pairs)
        return same and self.left_at_sites(world) == self.kept


def charges(disk):
    """What a site's ledger on its disk has, and for which μ; nothing twice."""
    entries = ReleaseLedger(Store(disk), SitePolicy(**UNLIMITED)).entries()
    found = {(entry.message, entry.content): entry.size for entry in entries}
    assert len(found) == len(entries)
    return found


class PrivateCase(Case):
    """Messages with noise: whatever left is in the ledger by then, and never with other noise."""

    def party(self, name, disk, clock, told):
        party = super().party(name, disk, clock, told)
        handle = party.handle

        def checked(payload):
            answer = handle(payload)
            self.check(name, decode(answer), SafeDisk(disk), told)
            return answer

        party.handle = checked
        return party

    def check(self, name, answer, disk, left):
        """`left` holds what has left this client in this world, by what it is."""
        kinds = [message for message, _ in charges(disk)]
        arrays = {key: value.tobytes() for key, value in answer.arrays.items()}
        if answer.kind in ("hello", "states"):
            assert kinds.count("states") == kinds.count("clipped") == 1
        if answer.kind == "message":
            arrays.pop("filtered_states")  # sent once only
            assert kinds.count("augmented") > answer.values["round"]
            assert kinds.count("feedback") >= answer.values["round"]
            assert kinds.count("filtered") == kinds.count("moments") == 1
        for key, content in arrays.items():
            place = (answer.kind, answer.values.get("round"), answer.values.get("piece"), key)
            before = [old for where, old in left if where == place]
            assert before in ([], [content]), f"{name}: other noise for {place}"
            if not before:
                left.append((place, content))


class SafeDisk:
    """What would be there after a crash at this moment."""

    def __init__(self, disk):
        self._files = dict(disk.safe)
        for source, target in disk.renames:  # none is pending once a record is written
            raise AssertionError((source, target))

    def read(self, name):
        return self._files.get(name)


class WatchCase(Case):
    """New data of a small run that was made before; a client is shaken half-way."""

    def __init__(self, config, num_steps=60, **options):
        watch = WatchOptions(steps=13, calm_steps=10)
        whole = fg.simulate(2, 200 + num_steps, sensor_dims=3, state_dims=1, seed=5)[0]
        training, new = whole.slice(0, 200), whole.slice(200, 200 + num_steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = fg.fit(training, config)
        self.normals, _ = require_normal(result)
        self.protocol = watch_protocol(knowledge_of(result), watch)
        self.new = {client.name: replace(client, values=client.values.copy()) for client in new}
        self.new["client1"].values[30:40] += 12.0
        super().__init__(config, **options)

    def fill(self, disks):
        for name, own in self.normals.items():
            memory = Memory()
            keep_normal(Store(memory), "run", own)
            for record, content in memory.files.items():
                disks[name].seen[record] = disks[name].safe[record] = content

    def party(self, name, disk, clock, told):
        site = Site(Store(disk), SitePolicy(**UNLIMITED), b"s" * 32, clock)
        new = self.new[name]
        watcher = Watcher(
            lambda: LocalSeries(new, 500 + np.arange(len(new.values))),
            site,
            lambda alarm: told.__setitem__(slice(None), with_alarm(told, alarm)),
        )
        return Party(self.series(name), site, None, watcher=watcher)

    def left_at_sites(self, world):
        return {name: list(told) for name, told in world.told.items()}

    def is_same(self, found, world):
        texts = [
            [(alarm.step, alarm.ranking.to_mapping()) for alarm in one.alarms]
            for one in (found, self.reference)
        ]
        return texts[0] == texts[1] and self.left_at_sites(world) == self.kept
