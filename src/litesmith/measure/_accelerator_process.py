# SPDX-License-Identifier: Apache-2.0
"""A worker process for one accelerator, seen from outside: questions, answers, and what is known when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litesmith.errors import MeasureError
from litesmith.measure._accelerator_worker import Job

TIME_LIMIT_S = 300.0
_LAST_LINES = 3
_PROGRAM = (  # Ctrl-C is for us to handle
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "from litesmith.measure._accelerator_worker import main; main()"
)


class WorkerFailed(MeasureError):
    """The accelerator cannot run the model, or its process died."""


class WorkerProcess:
    """The process of one accelerator. It ends when this one does: there are no more requests then.

    Requests have numbers, and so have their answers: after a Ctrl-C one may come that nobody waits for any more. A thread
    reads them, since a Ctrl-C cannot tear a line there.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self._asked = 0
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._printed = folder / "printed.txt"
        command = [sys.executable, "-c", _PROGRAM]
        environment = {**os.environ, **job.accelerator.environment()}
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                env=environment,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._send(job.to_json())

    def ask(self, do: str, *, limit_s: float = TIME_LIMIT_S, **request: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            WorkerFailed: The accelerator refuses, its process died, or it took too long and was ended.
        """
        self._asked += 1
        self._send(json.dumps({"do": do, "number": self._asked, **request}))
        expired = threading.Timer(limit_s, self._process.kill)
        try:
            expired.start()
            reply = self._answer()
        finally:
            expired.cancel()
        if reply is None:
            raise WorkerFailed(self._why_it_died(limit_s))
        if "error" in reply:
            raise WorkerFailed(reply["error"])
        return reply

    def printed(self) -> str:
        """Return what the process has printed so far."""
        return self._printed.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5)

    def _read(self) -> None:
        """Pass the answers on, line by line, and None when there are no more; half a line is of a process that died."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):
                    self._answers.put(line)
        self._answers.put(None)

    def _answer(self) -> dict[str, Any] | None:
        """Return the answer to the last request, None when the process died."""
        while (line := self._answers.get()) is not None:
            reply: dict[str, Any] = json.loads(line)
            if reply.pop("number") == self._asked:
                return reply
        self._answers.put(None)  # whoever asks again gets the same
        return None

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, which the answer will show
            print(line, file=self._process.stdin, flush=True)

    def _why_it_died(self, limit_s: float) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return f"its process was ended after {limit_s:.0f} s without an answer, or killed for its memory"
        how = f"crashed ({signal.Signals(-code).name})" if code < 0 else f"ended with {code}"
        lines = [line.strip() for line in self.printed().splitlines() if line.strip()]
        said = " ".join(lines[-_LAST_LINES:])
        return f"its process {how}" + (f": {said[-400:]}" if said else "")


@contextlib.contextmanager
def worker_process(job: Job, folder: Path) -> Iterator[WorkerProcess]:
    """Yield a process for a job; it is gone afterwards."""
    process = WorkerProcess(job, folder)
    try:
        yield process
    finally:
        process.close()
