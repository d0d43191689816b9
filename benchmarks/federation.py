"""Rounds of training, and FLARE beside a plain gRPC loop with the same payload.

    python -m benchmarks.federation

1. Rounds until the FedGC fixed point is reached to 1e-6, exact solves and plain alternation, six
   clients, η2 = η1 and η2 = 100 η1; and how far plain descent is after 10 000 rounds. Exit code 1
   above 20 and 60 rounds.
2. The six-client run as provisioned FLARE processes on loopback: seconds per round and bytes, and
   the same bytes to and from six processes over plain gRPC with mutual TLS, in the same run. Exit
   code 1 above 30 times.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import fedgranger as fg  # noqa: E402
from fedgranger.runtime.inprocess import run_rounds, stack_windows  # noqa: E402
from fedgranger.runtime.row_inputs import single_row  # noqa: E402
from fedgranger.runtime.setup import initial_state, set_up  # noqa: E402
from fedgranger.server import row_solver  # noqa: E402
from fedgranger.uncertainty.update_moments import split_parameters, update_moments  # noqa: E402
from fedgranger_research.studies.exact_rounds import solve  # noqa: E402

CLIENTS, STEPS, SEEDS = 6, 2000, (0, 1, 2)
LIMITS = {1: 20, 100: 60}
LARGEST_ENGINE_RATIO = 30.0
TARGET = Path("benchmarks/results/federation.json")
FEDGRANGER = [sys.executable, "-m", "fedgranger"]


def fixed_points(setup, config):
    out = []
    for m in range(CLIENTS):
        row = single_row(setup, config, m)
        moments = update_moments(row.params, row.windows)
        x = np.linalg.solve(moments.gain, moments.drift) / moments.scale
        out.append(split_parameters(x, moments.shape)[1])
    return out


def distance(rows, expected, p):
    """Largest relative error of a row."""
    errors = []
    for m, row in enumerate(rows):
        others = np.flatnonzero(np.arange(row.shape[1]) // p != m)
        errors.append(np.linalg.norm(row[:, others] - expected[m]) / np.linalg.norm(expected[m]))
    return max(errors)


def rounds_needed(setup, config, expected):
    p = setup.state_dims[0]
    for count, (snapshot, _) in enumerate(solve(setup, config)):
        rows = np.asarray(snapshot.state.server.granger_row)
        if distance(rows, expected, p) < 1e-6:
            return count
    return None


def descent_distance(panel, ratio, expected, window, num_rounds):
    """How far plain descent is after so many rounds, with automatic step sizes."""
    base = set_up(panel, fg.RunConfig(state_dim=2, window=window)).client_step_sizes
    local = min(size.local for size in base) / ratio
    config = fg.RunConfig(
        state_dim=2, window=window, local_step_size=local, feedback_step_size=ratio * local
    )
    setup = set_up(panel, config)
    state, done = initial_state(setup, config), 0
    windows = stack_windows(setup, 0, setup.num_rounds)
    while done < num_rounds:
        state, _ = run_rounds(setup.params, state, windows)
        done += setup.num_rounds
    return distance(np.asarray(state.server.granger_row), expected, setup.state_dims[0])


def training():
    found = {}
    plain = lambda history, row, solved: (  # noqa: E731
        history, solved, np.linalg.norm(solved - row) / np.linalg.norm(solved),
    )  # fmt: skip
    for ratio in LIMITS:
        rounds, alternating, after = [], [], []
        for seed in SEEDS:
            panel = fg.simulate(CLIENTS, STEPS + 1, seed=seed)[0]
            config = fg.RunConfig(
                solver="newton", window="full", state_dim=2, passes=2000,
                local_step_size=1e-4, feedback_step_size=ratio * 1e-4, server_step_size=0.01,
            )  # fmt: skip
            setup = set_up(panel, config)
            expected = fixed_points(setup, config)
            rounds.append(rounds_needed(setup, config, expected))
            quick, row_solver.accelerate = row_solver.accelerate, plain
            alternating.append(rounds_needed(setup, config, expected))
            row_solver.accelerate = quick
            after.append([descent_distance(panel, ratio, expected, w, 10_000) for w in (1, "full")])
        single, full = np.array(after).T.tolist()
        found[ratio] = {
            "newton": rounds,
            "alternation": alternating,
            "sgd_distance_after_10000_steps": single,
            "full_batch_distance_after_10000_rounds": full,
        }
        far = [", ".join(f"{value:.2g}" for value in part) for part in (single, full)]
        print(
            f"eta2 = {ratio} eta1, seeds {SEEDS}: rounds to 1e-6: newton {rounds}, plain "
            f"alternation {alternating}; relative distance of step-wise descent after 10 000 steps "
            f"{far[0]}, of full-batch descent after 10 000 rounds {far[1]}",
            flush=True,
        )
    return found


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def flare_run(folder):
    """Six provisioned processes; seconds in all and the manifest of the run."""
    panel = fg.simulate(CLIENTS, 5000, seed=1)[0]
    panel.write(folder / "data")
    names, port = ",".join(panel.names), free_port()
    kits = folder / "kits"
    federation = [*FEDGRANGER, "federation"]
    init = ["init", str(kits), "--local", "--server", "localhost", "--clients", names]
    subprocess.run([*federation, *init, "--port", str(port)], check=True, capture_output=True)
    for name in panel.names:  # rounds are what is measured; by default a site allows none
        (kits / f"client-{name}" / "policy.toml").write_text("rounds = 1000\n")
    started = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    parties = [subprocess.Popen([*federation, "start", str(kits / "server")], **quiet)]
    for name in panel.names:
        data = ["--data", str(folder / "data" / f"{name}.csv")]
        command = [*federation, "start", str(kits / f"client-{name}"), *data]
        parties.append(subprocess.Popen(command, **quiet))
    try:
        command = [*federation, "run", str(kits / "admin"), "--out", str(folder / "run")]
        command += ["--solver", "newton"]
        subprocess.run(command, check=True, capture_output=True, timeout=400)
        seconds = time.perf_counter() - started
    finally:
        for party in parties:
            party.terminate()
        for party in parties:
            party.wait(30)
    return seconds, json.loads((folder / "run" / "manifest.json").read_text()), kits


ECHO = """
import sys, grpc
from concurrent.futures import ThreadPoolExecutor
port, answer, cert, key, root = int(sys.argv[1]), bytes(int(sys.argv[2])), *sys.argv[3:]
read = lambda path: open(path, "rb").read()
credentials = grpc.ssl_server_credentials([(read(key), read(cert))], read(root), True)
handler = grpc.unary_unary_rpc_method_handler(lambda request, _: answer)
server = grpc.server(ThreadPoolExecutor(2))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("fg", {"handle": handler})])
server.add_secure_port(f"localhost:{port}", credentials)
server.start()
server.wait_for_termination()
"""


def plain_grpc(kits, down, up, num_rounds=100):
    """Median seconds per round of the same bytes, all clients at once, mutual TLS."""
    import grpc

    startup = kits / "server" / "startup"
    files = [str(startup / name) for name in ("server.crt", "server.key", "rootCA.pem")]
    ports = [free_port() for _ in range(CLIENTS)]
    echoes = [
        subprocess.Popen([sys.executable, "-c", ECHO, str(port), str(up), *files]) for port in ports
    ]
    try:
        own = kits / "client-client1" / "startup"
        credentials = grpc.ssl_channel_credentials(
            *((own / name).read_bytes() for name in ("rootCA.pem", "client.key", "client.crt"))
        )
        channels = [grpc.secure_channel(f"localhost:{port}", credentials) for port in ports]
        for channel in channels:
            grpc.channel_ready_future(channel).result(20)
        calls = [channel.unary_unary("/fg/handle") for channel in channels]
        request, times = bytes(down), []
        for _ in range(num_rounds):
            before = time.perf_counter()
            for future in [call.future(request) for call in calls]:
                future.result(20)
            times.append(time.perf_counter() - before)
        return statistics.median(times)
    finally:
        for echo in echoes:
            echo.kill()


def work_of_the_parties():
    """Seconds per round that clients and server compute, in one process, without an engine."""
    panel = fg.simulate(CLIENTS, 5000, seed=1)[0]
    config = fg.RunConfig(solver="newton")
    setup = set_up(panel, config)
    times, before = [], None
    for _ in solve(setup, config):
        now = time.perf_counter()
        if before is not None:
            times.append(now - before)
        before = now
    return statistics.median(times)


def engine():
    folder = Path(tempfile.mkdtemp())
    try:
        seconds, manifest, kits = flare_run(folder)
        ledger = __import__("pandas").read_csv(folder / "run" / "ledger.csv")
        step = ledger.query("phase == 'step' and round > 0")
        down, up = int(step["bytes_down"].median()), int(step["bytes_up"].median())
        floor = plain_grpc(kits, down, up)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    per_round = manifest["timings"]["seconds_per_round"]
    totals = manifest["bytes"]["client1"]
    out = {
        "seconds_with_start": seconds,
        "rounds": manifest["training"]["rounds"],
        "exchanges": manifest["timings"]["num_exchanges"],
        "seconds_per_round": per_round,
        "bytes_down_per_round": down,
        "bytes_up_per_round": up,
        "plain_grpc_seconds": floor,
        "ratio": per_round / floor,
        "seconds_of_work": work_of_the_parties(),
        "client1": totals,
    }
    print(
        f"six clients as FLARE processes, 5000 steps: {seconds:.0f} s with start-up, "
        f"{out['rounds']} rounds ({out['exchanges']} exchanges), {1e3 * per_round:.0f} ms per "
        f"round ({1 / per_round:.1f} rounds per second), {down} bytes down and {up} up per client "
        f"and round; plain gRPC with the same bytes {1e3 * floor:.1f} ms, ratio "
        f"{out['ratio']:.1f}; the parties' own computation, one after the other in one process, "
        f"{1e3 * out['seconds_of_work']:.0f} ms; client1 sent {totals['bytes_up']} bytes in all"
    )
    return out


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    out = {"training": training(), "engine": engine()}
    failures = [
        f"more than {limit} rounds at ratio {ratio}"
        for ratio, limit in LIMITS.items()
        if any(n is None or n > limit for n in out["training"][ratio]["newton"])
    ]
    if out["engine"]["ratio"] > LARGEST_ENGINE_RATIO:
        failures.append(f"FLARE costs more than {LARGEST_ENGINE_RATIO:.0f} times plain gRPC")
    if out["engine"]["seconds_with_start"] > 180:
        failures.append("more than three minutes with start-up")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(out, indent=1) + "\n")
    print("\n".join(failures) or "all limits kept")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
