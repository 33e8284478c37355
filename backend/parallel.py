"""Independent steps of a fit, side by side where joblib is told so.

``with joblib.parallel_config("loky", n_jobs=4):`` around a stage shares its steps among processes; ``ray`` and ``dask``
are other backends. Without it they run one after another in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

T = TypeVar("T")
PATIENCE = 2.0  # seconds of short steps before they are shared: Ray's workers take 10 to 20 to start
ROUND = 4  # steps of a worker after which results of a backend without a stream are given


def each(function: Callable[..., T], arguments: Iterable[tuple[Any, ...]], patience: float = 0.0) -> Iterator[T]:
    """Results of a function for every tuple of arguments, in their order, as they are done.

    patience : seconds of steps that are done here before the others are shared, since workers take long to start.

    In another process a step has one thread: the last bits of a sum depend on how many there are, and processes with
    many each would fight for the same processors. Arrays that are mapped from files stay mapped there.
    """
    workers, remaining = effective_n_jobs(None), iter(arguments)
    if workers == 1:
        yield from (function(*one) for one in remaining)
        return
    while patience > 0 and (here := next(remaining, None)) is not None:
        begun = time.perf_counter()
        with threadpool_limits(1):
            done = function(*here)
        patience -= time.perf_counter() - begun
        yield done
    if (first := next(remaining, None)) is None:
        return
    steps = (delayed(_alone)(function, one) for one in chain([first], remaining))
    if get_active_backend()[0].supports_return_generator:
        yield from Parallel(return_as="generator")(steps)
        return
    with Parallel() as parallel:  # Ray gives lists only, so a few steps a worker at a time
        while some := list(islice(steps, ROUND * workers)):
            yield from parallel(some)


def _alone(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    import torch  # in a process of its own, which has not loaded it

    torch.set_num_threads(1)
    with threadpool_limits(1):
        return function(*arguments)
