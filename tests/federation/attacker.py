"""A server that asks one client whatever it likes, and keeps all that it gets; for tests."""

import contextlib

import numpy as np

import fedgranger as fg
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.agreed_options import ClientOptions, FederationOptions
from fedgranger.federation.codec import Packet, decode, encode
from fedgranger.federation.party import Party
from fedgranger.federation.preparation import prepare_party
from fedgranger.federation.questions import Site
from fedgranger.federation.store import Store
from tests.configs import formula_config

NUM_STEPS = 120
PANEL, TRUTH = fg.simulate(2, NUM_STEPS, sensor_dims=8, state_dims=2, seed=3)
CLIENT = PANEL["client1"]
DEFAULT = formula_config(solver="none")


class Memory:
    """A disk that never fails."""

    def __init__(self):
        self.files = {}

    def read(self, name):
        return self.files.get(name)

    def write(self, name, content):
        self.files[name] = content

    def rename(self, source, target):
        self.files[target] = self.files.pop(source)

    def flush(self, name):
        pass

    def locked(self):
        return contextlib.nullcontext()

    def flush_folder(self):
        pass


PREPARED = {}


def prepare(series, grid, options, start, noise):
    """Keep what was prepared: it depends on nothing else, and sequences repeat it."""
    theta = options.config.solver != "none" and start((1, 1)).tobytes()
    key = (grid, options.to_text(), theta, series.model is None, noise.secret)
    if key not in PREPARED:
        PREPARED[key] = prepare_party(series, grid, options, start, noise)
    return PREPARED[key]


class Attacker:
    """A server that speaks to one party and keeps every number it is given."""

    def __init__(self, policy, secret=b"s" * 32):
        self.policy, self.secret, self.disk = policy, secret, Memory()
        self.seen = [{} for _ in range(NUM_STEPS)]
        self.thetas = set()
        self.kinds, self.codes = [], []
        self.restart()

    def restart(self, model=None):
        self.party = Party(
            LocalSeries(CLIENT, np.arange(NUM_STEPS), model=model),
            Site(Store(self.disk), self.policy, self.secret, lambda: 0.0),
            prepare,
        )

    def ask(self, kind, values, arrays=None, run="run"):
        payload = encode(Packet(kind, run, "client1", values, arrays or {}))
        answer = decode(self.party.handle(payload))
        self.kinds.append(answer.kind)
        if answer.kind == "refusal":
            self.codes.append(answer.values["code"])
        return answer

    def offer(self, options, run="run"):
        text = options if isinstance(options, str) else options.to_text()
        return self.ask("offer", {"nonce": "n", "options": text}, run=run)

    def begin(
        self, epoch, first=0, num_steps=NUM_STEPS, round_index=0, run="run", cut=None, **changed
    ):
        stretches = ((0, num_steps),) if cut is None else cut
        values = {
            "epoch": epoch,
            "round": round_index,
            "time_kind": "numbers",
            "first": str(first),
            "interval": "1",
        }
        arrays = {"stretches": np.array(stretches, dtype=np.int64)}
        return self.ask("begin", {**values, **changed}, arrays, run=run)

    def upload(self, epoch, piece=0, run="run"):
        answer = self.ask("upload", {"epoch": epoch, "piece": piece}, run=run)
        if answer.kind == "states":
            self._keep("states", answer.arrays["states"], piece)
        return answer

    def step(self, epoch, round_index, gradients=None, want=0, run="run"):
        values = {
            "epoch": epoch,
            "round": round_index,
            "learn_piece": -1 if gradients is None else 0,
            "learn_pieces": 0 if gradients is None else 1,
            "want_piece": want,
            "want_filtered": True,
        }
        gradients = np.zeros((0, 0)) if gradients is None else gradients
        answer = self.ask("step", values, {"gradients": gradients}, run=run)
        if answer.kind == "message":
            corrected = answer.arrays["augmented_states"] - answer.arrays["filtered_states"]
            self._keep(f"round {round_index} {corrected[:3].tobytes()}", corrected, want)
            self._keep("filtered", answer.arrays["filtered_states"], want)
            self.thetas.add(corrected[:3].tobytes())
        return answer

    def _keep(self, name, rows, piece):
        """File rows under their time steps, which only the party knows for certain."""
        told = ClientOptions.from_text(self.party._followed.options)
        start = round(self.party._followed.grid.first) + piece * told.message_steps
        for k, row in enumerate(rows):
            self.seen[start + k].setdefault(row.tobytes(), (name, row))

    def columns(self):
        """Everything that was obtained for the steps that have the most, side by side."""
        rows = [np.concatenate([row for _, row in found.values()] or [[]]) for found in self.seen]
        width = max(map(len, rows))
        where = [t for t, row in enumerate(rows) if len(row) == width]
        return np.array([rows[t] for t in where]), np.array(where)


def options(message_steps=50_000, **changed):
    config = formula_config(**{"solver": "none", **changed})
    return FederationOptions(config, message_steps=message_steps).for_client("client1")
