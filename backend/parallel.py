"""Independent steps of a fit, side by side where joblib is told so.

``with joblib.parallel_config("loky", n_jobs=4):`` around a stage shares its steps among processes; ``ray`` and ``dask``
are other backends. Without it they run one after another in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

T = TypeVar("T")
ROUND = 4  # steps of a worker after which results of a backend without a stream are given


def each(function: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Results of a function for every tuple of arguments, in their order, as they are done.

    In another process a step has one thread: the last bits of a sum depend on how many there are, and processes with
    many each would fight for the same processors. Arrays that are mapped from files stay mapped there.
    """
    workers = effective_n_jobs(None)
    if workers == 1:
        yield from (function(*one) for one in arguments)
        return
    steps = (delayed(_alone)(function, one) for one in arguments)
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
