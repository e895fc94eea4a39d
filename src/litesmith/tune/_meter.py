# SPDX-License-Identifier: Apache-2.0
"""A device measures for a search: from this process, one job at a time; all that is no measurement is done here."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from litesmith.devices import Device, check, find
from litesmith.errors import DeviceError, UsageError
from litesmith.measure import MachineFacts
from litesmith.tune._jobs import Failure, Job, Measure, measured, work
from litesmith.tune._question import Question
from litesmith.tune._workers import Workers

PROBE_S = 0.01


def measuring_device(device: str | Device | None, devices_file: str | Path | None) -> Device | None:
    """Return the device that is meant; refuses one whose measurements have no spread."""
    target = None if device is None else find(device, devices_file)
    if target is not None and target.address[0] == "adb":
        raise UsageError(
            f"device {target.name!r} is an Android device: benchmark_model prints no single runs, and without them "
            "candidates cannot be compared; bench the files that tune leaves there"
        )
    return target


def measuring_machine(question: Question, model: str | Path) -> MachineFacts:
    """Return the facts of the machine that measures; one that cannot run the float model is told before the search."""
    facts: MachineFacts = measured(question.device, "bench", model, runs=1, memory=False).machine
    return facts


def measuring_worker(question: Question, meter: Workers) -> MachineFacts:
    """Return the facts of the machine of a worker that measures; the float model that does not run there is told."""
    meter.submit(0, Measure((question.model,), (1,), PROBE_S))
    _, answer = meter.next()
    if isinstance(answer, Failure):
        raise DeviceError(f"the worker that measures latency cannot measure the float model: {answer.reason}")
    facts: MachineFacts = answer.machine
    return facts


class DeviceMeter:
    """Does its jobs one after the other, measuring on the device of the question.

    A file that fails there is a finding about the file; a device that no longer answers ends the search, which goes on
    where it was when it is started again.
    """

    count = 1

    def __init__(self, question: Question) -> None:
        self._question = question
        self._waiting: deque[tuple[int, Job]] = deque()

    def submit(self, ticket: int, job: Job) -> None:
        """Take a job."""
        self._waiting.append((ticket, job))

    def next(self) -> tuple[int, Any]:
        """Do the next job and return its answer with its ticket."""
        ticket, job = self._waiting.popleft()
        answer = work(self._question, job)
        if isinstance(answer, Failure) and self._question.device is not None:
            check(self._question.device)
        return ticket, answer

    def close(self) -> None:
        """Nothing is left open between two jobs."""
