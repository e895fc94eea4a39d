# SPDX-License-Identifier: Apache-2.0
"""Who does the jobs: processes of this machine, or a Dask cluster.

A process that dies takes nothing with it: its job is given to another once more; a job that two processes died of is
answered with a Failure. So a killed worker changes nothing, and a model that crashes LiteRT is a recorded trial.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from litesmith.errors import DataError
from litesmith.tune._jobs import Failure, Job, work

ATTEMPTS = 2
PARENT_CHECK_S = 1.0
_STDERR = 2  # what LiteRT prints is not our result
_PROGRAM = "import sys; from litesmith.tune._workers import serve; serve(int(sys.argv[1]))"


class Workers(Protocol):
    """Takes jobs under a ticket and gives back answers as they come."""

    count: int

    def submit(self, ticket: int, job: Job) -> None:
        """Give a job to whoever is free next."""

    def next(self) -> tuple[int, Any]:
        """Wait for the next answer and return it with its ticket."""

    def close(self) -> None:
        """End all."""


@dataclass
class _Process:
    """One process of this machine, and what it is busy with."""

    handle: subprocess.Popen[bytes]
    line: Connection
    busy: _Ticket | None = None


@dataclass
class _Ticket:
    number: int
    job: Job
    deaths: list[str] = field(default_factory=list)


class LocalWorkers:
    """Processes of this machine, each started when it is first needed."""

    def __init__(self, question: Any, count: int) -> None:
        self.count = count
        try:
            self._question = pickle.dumps(question)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise DataError(
                f"the samples cannot be sent to other processes ({error}); use files, arrays, or a function of a module"
            ) from error
        self._waiting: deque[_Ticket] = deque()
        self._answers: deque[tuple[int, Any]] = deque()
        self._processes: list[_Process] = []

    def submit(self, ticket: int, job: Job) -> None:
        """Give a job to whoever is free next."""
        self._waiting.append(_Ticket(ticket, job))
        self._hand_out()

    def next(self) -> tuple[int, Any]:
        """Wait for the next answer and return it with its ticket."""
        while not self._answers:
            busy = {process.line: process for process in self._processes if process.busy is not None}
            assert busy, "nothing is under way"
            for line in wait(list(busy)):
                self._collect(busy[line])  # type: ignore[index]
            self._hand_out()
        return self._answers.popleft()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.line.close()  # the other side sees the end of its socket and leaves
            if process.busy is not None:
                process.handle.kill()
            process.handle.wait()
        self._processes = []

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.handle.pid for process in self._processes]

    def _hand_out(self) -> None:
        while self._waiting:
            free = next((p for p in self._processes if p.busy is None), None)
            if free is None and len(self._processes) < self.count:
                free = self._start()
            if free is None:
                return
            free.busy = self._waiting.popleft()
            try:
                free.line.send(free.busy.job)
            except OSError:
                self._bury(free)

    def _start(self) -> _Process:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
        handle = subprocess.Popen(  # noqa: S603
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=_STDERR
        )
        theirs.close()
        process = _Process(handle, Connection(ours.detach()))
        self._processes.append(process)
        with contextlib.suppress(OSError):  # it died at once: the job that it is given next tells
            process.line.send(sys.path)
            process.line.send_bytes(self._question)
        return process

    def _collect(self, process: _Process) -> None:
        assert process.busy is not None
        try:
            answer = process.line.recv()
        except (EOFError, OSError):
            self._bury(process)
            return
        self._answers.append((process.busy.number, answer))
        process.busy = None

    def _bury(self, process: _Process) -> None:
        """Take a dead process off the list, and give its job to another, or up."""
        code = process.handle.wait()
        process.line.close()
        self._processes.remove(process)
        ticket = process.busy
        if ticket is None:
            return
        ticket.deaths.append(death(code))
        if len(ticket.deaths) < ATTEMPTS:
            self._waiting.appendleft(ticket)
        else:
            reason, killed = f"the process died of it: {ticket.deaths[-1]}", code == -signal.SIGKILL
            self._answers.append((ticket.number, Failure(reason, crashed=True, transient=killed)))


def death(code: int) -> str:
    """Return what ended a process, from its exit code."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name} (out of memory?)" if name == "SIGKILL" else name


def _end_with(parent: int) -> None:
    """End this process once its parent has: a search that was killed shall not go on training for an hour."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def serve(descriptor: int) -> None:
    """Do the jobs that come over a socket, until the other side closes it: what a process of LocalWorkers runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the sockets
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    line = Connection(descriptor)
    try:
        sys.path[:] = line.recv()
        question = pickle.loads(line.recv_bytes())  # noqa: S301 (our own parent wrote it)
        while True:
            line.send(work(question, line.recv()))
    except (EOFError, ConnectionError):
        return  # the parent has ended
