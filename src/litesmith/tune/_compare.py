# SPDX-License-Identifier: Apache-2.0
"""Two files, one of them the winner of a lock: the difference, and the bounds that only a lock gives a meaning to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from litesmith import measure
from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.measure import Bench, Comparison
from litesmith.measure._bench import as_file
from litesmith.measure._compare import parse_bound
from litesmith.model import Model
from litesmith.tune._gate import Check, gate
from litesmith.tune._lock import read_lock

Source = Bench | Model | str | Path


def compare(
    before: Source,
    after: Source,
    *,
    threads: int | None = None,
    kernels: str = "delegate",
    seconds: float = 3.0,
    fail_if: str | tuple[str, ...] = (),
    allow_other_machine: bool = False,
    data: Dataset | str | Path | None = None,
    calibrate: Dataset | str | Path | None = None,
) -> Comparison:
    """Compare two results of ``bench``, or two models measured now, interleaved.

    Args:
        before: A result, the `.json` of one, a Model, the path of a `.tflite`, or a `litesmith.lock` for its winner.
        after: The same kind of thing.
        threads: Threads, for models; by default the lock's, or 1 without a lock.
        kernels: As in ``bench``, for models.
        seconds: Time for each model.
        fail_if: Bounds such as "latency>+3%" or "size>0%", of ``after`` next to ``before``; those that do not hold are in
            ``broken``. A latency breaks a bound only when its whole interval lies beyond it. With a lock also "drop>0.5%",
            "latency>5ms" and "size>4MB", which mean what they mean to ``gate``.
        allow_other_machine: Compare results of different machines all the same.
        data: With a lock, the samples, where they are not where it says; they are run for a bound on the drop.
        calibrate: The calibration samples, likewise.

    Example:
        >>> import litesmith
        >>> model = litesmith.samples.model()
        >>> litesmith.compare(model, model, seconds=0.2).change("size").ratio
        1.0
    """
    bounds = (fail_if,) if isinstance(fail_if, str) else tuple(fail_if)
    lock = next((Path(str(source)) for source in (before, after) if _is_lock(source)), None)
    if lock is not None and threads is None:
        timing = read_lock(lock).trial.best_timing
        threads = None if timing is None else timing.threads
    held = () if lock is None else tuple(text for text in bounds if not _is_relative(text))
    checks: tuple[Check, ...] = ()
    if lock is not None and held and not isinstance(after, Bench):
        with as_file(Path(str(after)).parent / "winner.tflite" if _is_lock(after) else after) as (path, _):
            checks = gate(lock, path, data=data, calibrate=calibrate, fail_if=held, seconds=seconds).checks
    result = measure.compare(
        before,
        after,
        threads=1 if threads is None else threads,
        kernels=kernels,
        seconds=seconds,
        fail_if=tuple(text for text in bounds if text not in held),
        allow_other_machine=allow_other_machine,
    )
    broken = {text for text, check in zip(held, checks, strict=True) if not check.holds}
    return replace(
        result,
        broken=tuple(text for text in bounds if text in broken or text in result.broken),
        checked=tuple(check.text for check in checks),
    )


def _is_lock(source: Source) -> bool:
    return isinstance(source, (str, Path)) and Path(source).suffix == ".lock"


def _is_relative(text: str) -> bool:
    """Say whether a bound is on the ratio of two files, which needs no lock."""
    try:
        parse_bound(text)
    except UsageError:
        return False
    return True
