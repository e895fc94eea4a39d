# SPDX-License-Identifier: Apache-2.0
"""Jobs on a Dask cluster: many machines share the candidates and the samples; the worker that owns the device measures.

Workers get the question once, as a plugin, also those that join later. Dask gives the jobs of a worker that died to
others; a job that several died of becomes a Failure. Where nobody is left who could do a job, Dask would wait for ever:
here that ends the search, which goes on where it was when it is started again.
"""

from __future__ import annotations

import importlib
import pickle
import queue
import re
import time
from typing import Any

from litesmith.errors import DeviceError, MissingExtraError, UsageError
from litesmith.tune._jobs import Accelerate, Explain, Failure, Job, Measure, work
from litesmith.tune._question import Question, content_hash

RESOURCE = "latency"
"""The resource tag of the worker that owns the device: `dask worker … --resources "latency=1"`."""
CONNECT_S = 30
CHECK_S = 5.0
"""How often it is looked, while no answer comes, whether somebody is there to give one."""
PATIENCE_S = 60.0
"""How long somebody may be missing: a worker that died may be started again, by its nanny or by hand."""
AGAIN = "start the search again: it goes on where it was"
_ADDRESS = re.compile(r"((tcp|tls|ucx|wss?)://)?(\[[^\s\[\]]+\]|[^\s\[\]:/]+):\d{1,5}|inproc://\S+")
"""Those that Dask knows: with a port, which it does not guess."""
_questions: dict[str, Question] = {}


def _keep(name: str, payload: bytes) -> None:
    _questions[name] = pickle.loads(payload)  # noqa: S301 (the driver's, over the cluster's own connection)


def _work(name: str, job: Job) -> Any:
    return work(_questions[name], job)


def _check_address(address: str) -> None:
    """Refuse what cannot be an address: Dask would look for it for a minute, and end in a traceback."""
    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"{address!r} is no address of a Dask scheduler; give one such as tcp://192.168.1.5:8786, which "
            "`dask scheduler` prints when it starts"
        )


class ClusterWorkers:
    """The workers of a Dask cluster at an address such as tcp://scheduler:8786."""

    def __init__(self, question: Question, address: str) -> None:
        _check_address(address)
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
        except (OSError, ValueError, ImportError, distributed.TimeoutError) as error:
            raise DeviceError(
                f"there is no Dask scheduler at {address}: {error}; start one with `dask scheduler`"
            ) from error
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except distributed.TimeoutError as error:
            self._client.close()
            raise DeviceError(
                f"the Dask scheduler at {address} has no workers; start some with `dask worker {address} --nthreads 1`"
            ) from error
        self._client.register_plugin(Ask(), name=name)
        self._name, self._address = name, address
        self._answers: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._under_way: dict[int, Any] = {}
        self._only_by_owner: set[int] = set()  # tickets of those under way that wait for the worker of the device
        workers = self._workers()
        self.count = sum(worker["nthreads"] for worker in workers)
        self.owns_device = any(RESOURCE in worker["resources"] for worker in workers)

    def submit(self, ticket: int, job: Job) -> None:
        """Give a job to whoever is free next; a latency only to the worker that owns the device."""
        resources = {RESOURCE: 1} if isinstance(job, (Measure, Explain, Accelerate)) and self.owns_device else None
        if resources:
            self._only_by_owner.add(ticket)
        future = self._client.submit(_work, self._name, job, pure=False, resources=resources)
        self._under_way[ticket] = future  # Dask forgets what nobody holds
        future.add_done_callback(lambda done: self._answers.put((ticket, done)))

    def next(self) -> tuple[int, Any]:
        """Wait for the next answer and return it with its ticket.

        Raises:
            DeviceError: nobody is left who could give one.
        """
        ticket, future = self._next_done()
        self._check_scheduler()
        self._under_way.pop(ticket, None)
        self._only_by_owner.discard(ticket)
        if future.status == "finished":
            return ticket, future.result()
        error = future.exception()
        reason = f"the workers died of it: {type(error).__name__}: {error}"
        return ticket, Failure(reason, crashed=True, transient=True)  # of what, Dask does not say

    def _next_done(self) -> tuple[int, Any]:
        lacking_since: float | None = None
        while True:
            try:
                return self._answers.get(timeout=CHECK_S)
            except queue.Empty:
                lacking = self._lacking()
            now = time.monotonic()
            lacking_since = None if not lacking else lacking_since or now
            if lacking_since is not None and now - lacking_since >= PATIENCE_S:
                raise DeviceError(f"{lacking}, and {AGAIN}")

    def _lacking(self) -> str:
        """Return who is missing for the jobs under way, and how to start one; nothing where all can be done."""
        self._check_scheduler()
        workers = self._workers()
        if not workers:
            return f"the Dask scheduler at {self._address} has no workers any more; start some"
        if self._only_by_owner and not any(RESOURCE in worker["resources"] for worker in workers):
            option = f'--resources "{RESOURCE}=1"'
            return f"the worker that measures latency left the cluster at {self._address}; start one with {option}"
        return ""

    def _check_scheduler(self) -> None:
        """Refuse to go on where the scheduler is gone: Dask cancels all jobs at once, and leaves after a while."""
        is_cancelled = any(future.status == "cancelled" for future in self._under_way.values())
        if is_cancelled or self._client.status in ("closing", "closed"):
            raise DeviceError(f"the Dask scheduler at {self._address} does not answer any more; start it and {AGAIN}")

    def _workers(self) -> list[dict[str, Any]]:
        return list(self._client.scheduler_info(n_workers=-1).get("workers", {}).values())

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()
