# SPDX-License-Identifier: Apache-2.0
"""Workers that are no processes, for tests of what a search makes of their answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from litesmith.tune._jobs import Built, Job, work
from litesmith.tune._question import Question


class Inline:
    """Workers of this process, two at once, beside which every candidate seems to be as slow as is said."""

    count = 2

    def __init__(self, question: Question, slowness: float) -> None:
        self.question, self.slowness = question, slowness
        self.waiting: list[tuple[int, Job]] = []

    def submit(self, ticket: int, job: Job) -> None:
        self.waiting.append((ticket, job))

    def next(self) -> tuple[int, Any]:
        ticket, job = self.waiting.pop()
        answer = work(self.question, job)
        return ticket, replace(answer, slowness=self.slowness) if isinstance(answer, Built) else answer

    def close(self) -> None:
        pass
