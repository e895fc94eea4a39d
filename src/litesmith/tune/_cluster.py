# SPDX-License-Identifier: Apache-2.0
"""Jobs on a Dask cluster: many machines share the candidates and the samples; the worker that owns the device measures.

Workers get the question once, as a plugin, also those that join later. Dask gives the jobs of a worker that died to
others; a job that several died of becomes a Failure.
"""

from __future__ import annotations

import importlib
import pickle
import queue
from typing import Any

from litesmith.errors import DeviceError, MissingExtraError
from litesmith.tune._jobs import Accelerate, Explain, Failure, Job, Measure, work
from litesmith.tune._question import Question, content_hash

RESOURCE = "latency"
"""The resource tag of the worker that owns the device: `dask worker … --resources "latency=1"`."""
CONNECT_S = 30
_questions: dict[str, Question] = {}


def _keep(name: str, payload: bytes) -> None:
    _questions[name] = pickle.loads(payload)  # noqa: S301 (the driver's, over the cluster's own connection)


def _work(name: str, job: Job) -> Any:
    return work(_questions[name], job)


class ClusterWorkers:
    """The workers of a Dask cluster at an address such as tcp://scheduler:8786."""

    def __init__(self, question: Question, address: str) -> None:
        try:
            dask: Any = importlib.import_module("dask.config")
            distributed: Any = importlib.import_module("distributed")
        except ImportError as error:
            raise MissingExtraError("distributed", "cluster", "searching on a cluster") from error
        payload = pickle.dumps(question)
        name = f"litesmith-{content_hash(payload)[:16]}"

        class Ask(distributed.WorkerPlugin):  # type: ignore[misc]
            """Gives each worker the question."""

            def setup(self, worker: Any) -> None:
                """Keep the question in the worker's process."""
                del worker
                _keep(name, payload)

        dask.set({"distributed.admin.large-graph-warning-threshold": "1GB"})  # a job holds a model
        try:
            self._client: Any = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DeviceError(
                f"there is no Dask scheduler at {address}: {error}; start one with `dask scheduler`"
            ) from error
        self._client.wait_for_workers(1, timeout=CONNECT_S)
        self._client.register_plugin(Ask(), name=name)
        self._name = name
        self._answers: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._under_way: dict[int, Any] = {}
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        self.count = sum(worker["nthreads"] for worker in workers)
        self.owns_device = any(RESOURCE in worker["resources"] for worker in workers)

    def submit(self, ticket: int, job: Job) -> None:
        """Give a job to whoever is free next; a latency only to the worker that owns the device."""
        resources = {RESOURCE: 1} if isinstance(job, (Measure, Explain, Accelerate)) and self.owns_device else None
        future = self._client.submit(_work, self._name, job, pure=False, resources=resources)
        self._under_way[ticket] = future  # Dask forgets what nobody holds
        future.add_done_callback(lambda done: self._answers.put((ticket, done)))

    def next(self) -> tuple[int, Any]:
        """Wait for the next answer and return it with its ticket."""
        ticket, future = self._answers.get()
        self._under_way.pop(ticket, None)
        if future.status == "finished":
            return ticket, future.result()
        error = future.exception()
        reason = f"the workers died of it: {type(error).__name__}: {error}"
        return ticket, Failure(reason, crashed=True, transient=True)  # of what, Dask does not say

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()
