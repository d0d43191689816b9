"""Run one function over many tasks, in this process or in several fresh ones."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_WAITING_PER_JOB = 2


def completed(
    function: Callable[..., Outcome], tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[Outcome]:
    """Yield the outcomes as they come; with one job in the order of the tasks.

    Args:
        function: of a module, so that a fresh process finds it.
        tasks: arguments of each call; with several jobs only a few are taken at a time, so a
            generator that makes large arguments does not fill the memory.
        jobs: processes.
    """
    if jobs == 1:
        for task in tasks:
            yield function(*task)
        return
    # Fresh processes with one thread each: JAX does not survive a fork.
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    pending: set[Future[Outcome]] = set()
    try:
        for task in tasks:
            pending.add(pool.submit(function, *task))
            if len(pending) >= _WAITING_PER_JOB * jobs:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
