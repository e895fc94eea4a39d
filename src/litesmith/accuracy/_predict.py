# SPDX-License-Identifier: Apache-2.0
"""Run a model over a dataset at the speed of the runtime, and let a metric look at what comes out.

Everything but the runs themselves is done for a block of samples at a time. The next block is read and prepared by a
second thread while the session, which needs no Python between two samples (Session.run_each), works. Blocks are
the same however many processes share the work, and each sample is run alone, so the results are the same too.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import multiprocessing
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.accuracy._metric import Array, Metric, Observed
from litesmith.accuracy._ports import Port, ports
from litesmith.data import Batch, Dataset
from litesmith.errors import DataError, SessionError, UsageError
from litesmith.model import Model
from litesmith.progress import task
from litesmith.runtime import Session
from litesmith.runtime._arrays import stacked
from litesmith.runtime._source import ModelSource

_BLOCK_BYTES = 4 << 20
_BLOCK_SAMPLES = 256
_RANGES_PER_PROCESS = 4


@dataclass(frozen=True)
class Candidate:
    """A model to run, as it can be sent to another process.

    Attributes:
        name: for people.
        source: where LiteRT reads it.
        inputs, outputs: in the runtime's types.
        stateful: whether it keeps something from one run to the next, which is reset before each sample.
        remembers: whether it keeps something that cannot be reset.
        signature, kernels, threads: how it is run.
    """

    name: str
    source: ModelSource
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    stateful: bool
    remembers: bool
    signature: str | None
    kernels: str
    threads: int

    @classmethod
    def of(cls, model: Any, *, signature: str | None = None, kernels: str = "delegate", threads: int = 1) -> Candidate:
        """Read and verify a model given as a path, bytes or Model."""
        source = ModelSource.of(model, verify=True)
        read = model if isinstance(model, Model) else None
        if read is None:
            read = Model.load(source.path) if source.path is not None else Model.from_bytes(source.content or b"")
        inputs, outputs = ports(read, signature)
        stateful = any(tensor.is_variable for graph in read.subgraphs for tensor in graph.tensors)
        name = source.path.name if source.path is not None else read.source.name if read.source else "the model"
        remembers = any(operator.kind == "VAR_HANDLE" for _, _, operator in read.operators())
        return cls(name, source, inputs, outputs, stateful, remembers, signature, kernels, threads)

    def bind(self, dataset: Dataset) -> Dataset:
        """Return the samples as this model takes them; reals stay reals, they are quantized when they are fed."""
        are_reals = all(array.dtype.kind == "f" for array in dataset[0].inputs.values())
        return dataset.bind([port.real if are_reals else port.stored for port in self.inputs])


class Runner:
    """A compiled model that takes blocks of samples."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._session = Session(
            candidate.source,  # type: ignore[arg-type]  # verified when the candidate was made
            threads=candidate.threads,
            signature=candidate.signature,
            kernels=candidate.kernels,
        )

    def close(self) -> None:
        """Release what LiteRT holds."""
        self._session.close()

    def prepare(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return a block of samples in the runtime's types."""
        return {port.name: port.quantize(inputs[port.name]) for port in self._candidate.inputs}

    def run(self, block: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Run each sample of a prepared block and return the outputs as the runtime gives them, stacked."""
        self._fit(block, count)
        views = self._session.inputs
        return self._session.run_each({name: a.reshape(count, *views[name].shape) for name, a in block.items()})

    def _fit(self, block: Mapping[str, Array], count: int) -> None:
        """Give the session the shapes of these samples, where the model allows several."""
        views = self._session.inputs
        shapes = {
            name: array.shape[1:] if array.ndim > views[name].ndim else array.shape for name, array in block.items()
        }
        if any(views[name].size * count != array.size for name, array in block.items()):
            self._session.resize(
                {n: (1, *shape) if len(shape) < views[n].ndim else shape for n, shape in shapes.items()}
            )

    def reals(self, outputs: Mapping[str, Array], first: int) -> dict[str, Array]:
        """Return outputs as reals; refuse NaN and infinity."""
        result = {}
        for port in self._candidate.outputs:
            values = outputs[port.name]
            if values.dtype == object and isinstance(values[0], np.ndarray):
                result[port.name] = stacked([port.reals(one) for one in values])
                continue
            values = port.reals(values)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
                bad = values[row][~np.isfinite(values[row])]
                raise DataError(
                    f"{self._candidate.name}: output {port.name!r} is {bad.flat[0]} ({bad.size} of {values[row].size} "
                    f"values) for sample {first + row}; check that the preprocessing is the one the model was trained "
                    "with, and try kernels=builtin to see whether the model or XNNPACK computes it"
                )
            result[port.name] = values
        return result


@dataclass(frozen=True)
class Job:
    """What is to be observed: a model, its samples, a metric, and perhaps another model to compare with."""

    candidate: Candidate
    dataset: Dataset
    metric: Metric
    reference: Candidate | None = None

    def block_samples(self) -> int:
        """Return how many samples make a block; models of changing input shape take them one by one."""
        if any(-1 in port.shape[1:] for port in self.candidate.inputs):
            return 1
        size = sum(int(np.prod([max(d, 1) for d in port.shape])) * 4 for port in self.candidate.inputs)
        return max(1, min(_BLOCK_SAMPLES, _BLOCK_BYTES // max(1, size)))


def observe(job: Job, *, processes: int = 1) -> dict[str, Array]:
    """Run all samples and return what the metric keeps of them, in the order of the dataset."""
    count = len(job.dataset)
    if processes < 1:
        raise UsageError(f"processes must be 1 or more, not {processes}")
    if processes > 1 and job.candidate.remembers:
        raise UsageError(
            f"{job.candidate.name} keeps resource variables from one sample to the next, so the order of the samples "
            "matters; use processes=1"
        )
    block = job.block_samples()
    with task(f"Evaluating {job.candidate.name}", total=count) as advance:
        if processes == 1 or count <= block:
            seen = _observe_range(_Worker(job), 0, count, advance)
        else:
            seen = _observe_in_processes(job, processes, block, advance)
    return seen


def _observe_in_processes(job: Job, processes: int, block: int, advance: Callable[[float], None]) -> dict[str, Array]:
    count = len(job.dataset)
    step = block * max(1, math.ceil(count / block / (processes * _RANGES_PER_PROCESS)))
    ranges = [(start, min(start + step, count)) for start in range(0, count, step)]
    try:
        payload = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError(
            f"the dataset, metric or decoder cannot be sent to other processes ({error}); use processes=1, or "
            "functions of a module instead of local ones"
        ) from error
    # Spawned, not forked: LiteRT and its threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(
        min(processes, len(ranges)), mp_context=context, initializer=_start_worker, initargs=(payload,)
    )
    with pool:
        futures = [pool.submit(_work, start, stop) for start, stop in ranges]
        try:
            parts = []
            for (start, stop), future in zip(ranges, futures, strict=True):
                parts.append(future.result())
                advance(stop - start)
        except concurrent.futures.process.BrokenProcessPool as error:
            raise SessionError(
                "a process that evaluates died: out of memory, LiteRT crashed on the model, or a script that starts "
                "processes has no `if __name__ == '__main__':`; use processes=1 to see"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return _concatenated(parts)


class _Worker:
    """Compiled models and bound samples, for one process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.dataset = job.candidate.bind(job.dataset)
        self.runner = Runner(job.candidate)
        self.reference = None if job.reference is None else Runner(job.reference)
        self.reference_dataset = None if job.reference is None else job.reference.bind(job.dataset)


_worker: _Worker | None = None


def _start_worker(payload: bytes) -> None:
    global _worker
    _worker = _Worker(pickle.loads(payload))  # noqa: S301 (our own parent wrote it)


def _work(start: int, stop: int) -> dict[str, Array]:
    assert _worker is not None
    return _observe_range(_worker, start, stop, lambda _count: None)


def _observe_range(worker: _Worker, start: int, stop: int, advance: Callable[[float], None]) -> dict[str, Array]:
    job, runner, reference = worker.job, worker.runner, worker.reference
    size = job.block_samples()
    parts = []
    first = start
    with _prefetched(_prepared(worker, start, stop, size)) as blocks:
        for batch, fed, fed_reference in blocks:
            count = len(batch)
            outputs = runner.reals(runner.run(fed, count), first)
            target = None
            if reference is not None and fed_reference is not None:
                target = reference.reals(reference.run(fed_reference, count), first)
            parts.append(job.metric.observe(Observed(outputs, batch.labels, target, batch.inputs, first)))
            first += count
            advance(count)
    return _concatenated(parts)


_Block = tuple[Batch, dict[str, Array], "dict[str, Array] | None"]


def _prepared(worker: _Worker, start: int, stop: int, size: int) -> Iterator[_Block]:
    batches = worker.dataset[start:stop].batches(size)
    reference, candidate = worker.reference, worker.job.reference
    if reference is None or candidate is None or worker.reference_dataset is None:
        for batch in batches:
            yield batch, worker.runner.prepare(batch.inputs), None
    elif _same_inputs(worker.job.candidate, candidate):
        (name,) = (port.name for port in candidate.inputs)
        for batch in batches:
            yield batch, worker.runner.prepare(batch.inputs), reference.prepare({name: batch.x})
    else:
        others = worker.reference_dataset[start:stop].batches(size)
        for batch, other in zip(batches, others, strict=True):
            yield batch, worker.runner.prepare(batch.inputs), reference.prepare(other.inputs)


def _same_inputs(first: Candidate, second: Candidate) -> bool:
    """Say whether a sample read for one model can be fed to the other, so that it need not be read twice."""
    specs = [[(port.real.shape, port.real.dtype) for port in one.inputs] for one in (first, second)]
    return len(first.inputs) == 1 and specs[0] == specs[1]


@contextlib.contextmanager
def _prefetched(blocks: Iterator[_Block]) -> Iterator[Iterator[_Block]]:
    """Read one block ahead in a thread of its own."""
    ahead: queue.Queue[tuple[_Block | None, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: tuple[_Block | None, BaseException | None]) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ahead.put(item, timeout=0.1)
                return

    def read() -> None:
        try:
            for block in blocks:
                put((block, None))
                if stopped.is_set():
                    return
            put((None, None))
        except BaseException as error:  # noqa: BLE001 (raised again where the blocks are wanted)
            put((None, error))

    def take() -> Iterator[_Block]:
        while True:
            block, error = ahead.get()
            if error is not None:
                raise error
            if block is None:
                return
            yield block

    thread = threading.Thread(target=read, name="litesmith-read", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        stopped.set()
        thread.join()


def _concatenated(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
