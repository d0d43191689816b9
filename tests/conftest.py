"""Strict numerics for every test: float64, no silent promotion of types or ranks.

What JAX compiles is kept in a folder that all workers, the processes they start and all clones of
one user share (some 20 MB; `make clean` empties it), so that each function is compiled once for
each shape, and it is compiled without optimising, because most tests compile more than they
compute (`make test-all` compiles as users do). Python's bytecode is
kept too, whatever the environment asks for: dozens of processes read the same modules. Workers
share the cores, so each of them, and every process it starts, computes on one thread: small
products on several wait for each other. Temporary folders are in memory where there is room:
parties force every record to the disk, thousands of them, and each would take some 5 ms of waiting.
"""

import gc
import inspect
import os
import shutil
import signal
import sys
from functools import cache, cached_property, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedgranger-tests"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("COLUMNS", None)  # workers have that of the terminal in which they were started

import jax
import numpy as np
import pytest
import scipy.linalg  # noqa: F401  brings its own threads
from jaxtyping import _decorator
from threadpoolctl import ThreadpoolController, threadpool_limits

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background jobs, and what they start, ignore Ctrl-C; those of tests must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.dont_write_bytecode = False
threadpool_limits(1)  # for what was loaded before the variable was set
# The library limits them in every call; to find out which are loaded takes 5 ms, dozens of times in
# a fit. Those that are loaded later see the variable.
LOADED = ThreadpoolController().lib_controllers
ThreadpoolController._load_libraries = lambda self: self.lib_controllers.extend(LOADED)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def _remembered(function):
    """What the function gave for the same arguments; it is asked anew where they have no hash."""
    known = cache(function)

    @wraps(function)
    def call(*args, **options):
        try:
            return known(*args, **options)
        except TypeError:
            return function(*args, **options)

    return call


def _read_once(read):
    """Types that are written as text are read once in every module; not those not yet known."""
    known = {}

    def call(text, names):
        found = known.get((text, id(names))) if isinstance(text, str) else None
        if found is None:
            found = read(text, names)
            if isinstance(text, str) and found is not Any:
                known[text, id(names)] = found
        return found

    return call


class _Bound(NamedTuple):
    """Arguments by name, defaults included."""

    arguments: dict[str, Any]

    def apply_defaults(self):
        """They are there."""


class _Signature(inspect.Signature):
    """Binds arguments to names as `inspect` does, which where they fit needs no check of each."""

    @cached_property
    def _names_and_defaults(self):
        listed = list(self.parameters.values())
        by_place = [p.name for p in listed if p.kind == p.POSITIONAL_OR_KEYWORD]
        by_name = [p.name for p in listed if p.kind == p.KEYWORD_ONLY]
        defaults = {p.name: p.default for p in listed if p.default is not p.empty}
        return by_place if len(by_place) + len(by_name) == len(listed) else None, defaults

    def bind(self, /, *args, **kwargs):
        names, defaults = self._names_and_defaults
        if names is not None and len(args) <= len(names):
            placed = dict(zip(names, args, strict=False))
            found = defaults | placed | kwargs
            if found.keys() == self.parameters.keys() and placed.keys().isdisjoint(kwargs):
                return _Bound(found)
        return super().bind(*args, **kwargs)


_decorator.inspect = SimpleNamespace(**vars(inspect) | {"signature": _Signature.from_callable})
# A function within a function is typed anew in every call of the outer one. What checks it
# depends on its name and signature alone: made once, it checks the same in a tenth of the time.
_decorator._destring_annotation = _read_once(_decorator._destring_annotation)
_decorator._make_fn_with_signature = _remembered(_decorator._make_fn_with_signature)
_decorator._apply_typechecker = _remembered(_decorator._apply_typechecker)

MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**32:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

FIRST = (
    "tests/federation/test_real_parties.py",
    "tests/unit/uncertainty/test_recursion.py",
    "tests/research/test_reproduction.py",
    "tests/federation/test_faults.py",
    "tests/runtime/test_manifest_types.py",
    "tests/federation/",
    "tests/cli/test_cli.py",
)
"""Files that take longest, most of them waiting for real processes or compiling what other files
need too: begun last, one worker would wait for the other; begun beside those others, both would
compile the same."""


def pytest_collection_modifyitems(items):
    """Put these files first, in the order above."""

    def place(item):
        starts = (k for k, start in enumerate(FIRST) if item.nodeid.startswith(start))
        return next(starts, len(FIRST))

    items.sort(key=place)


def pytest_collection_finish():
    """Modules and tests stay to the end: the collector of garbage need not visit them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _commands_are_silent_while_they_work():
    """However slow the machine is, what a command prints in a test is the same."""
    from fedgranger.cli import console

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "MOMENT", 3600.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _factor_analyses_are_made_once():
    """Most tests fit the same few panels, and half of preparing a client is its factor analysis.

    Remembered by all bits of what it gets; every call has arrays of its own.
    """
    from fedgranger.client import loadings

    made = loadings.analyse_factors

    @cache
    def of_bits(content, shape, state_dim):
        return made(np.frombuffer(content).reshape(shape), state_dim)

    def remembered(rows, state_dim):
        W, noise, num_iterations = of_bits(rows.tobytes(), rows.shape, state_dim)
        return W.copy(), noise.copy(), num_iterations

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loadings, "analyse_factors", remembered)
        yield


# Fits that several files read; none of them writes to one.


@pytest.fixture(scope="session")
def small_run():
    """Two clients, trained in two passes."""
    import fedgranger as fg
    from tests.configs import formula_config

    panel, _ = fg.simulate(2, 600, seed=3)
    return fg.fit(panel, formula_config(state_dim=2, passes=2, tolerance=0))


@pytest.fixture(scope="session")
def normal_run():
    """The three clients of `tests.anomalies` in normal operation."""
    from tests.anomalies import made_run

    return made_run()


@pytest.fixture(scope="session")
def slow_run():
    """Its two slow clients."""
    from tests import anomalies

    return anomalies.slow_run()
