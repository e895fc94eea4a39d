# SPDX-License-Identifier: Apache-2.0
"""What is measured once candidates were tried, and how long that takes: time that the trying must leave."""

from __future__ import annotations

from dataclasses import dataclass

from litesmith.measure._timing import FEWEST_ROUNDS, WARM_WINDOW_S

TOGETHER = 10
"""Files measured in one interleaved round; more would make a round longer than the machine stays the same."""
MOST_TOGETHER = 24
"""Files times numbers of threads in one round, for the same reason, and as each has memory of its own."""
ACCELERATED = 6
"""Files that are tried on accelerators, at most: each starts a process for every accelerator."""
FRONT = 8
"""Files on a front, as a rule: all of them are scored on the held-out split."""
START_S = 1.5
"""What a process needs before its first job."""
EXPLAINED_RUNS = 400
"""What looking into the layers of the winner takes, in runs of the model."""


@dataclass(frozen=True)
class Measuring:
    """How files are measured.

    Attributes:
        threads: numbers of threads, with each of which every file is measured, so that like is compared with like.
        seconds: for each file and number of threads.
        accelerators: how many of them the best files are tried on.
        runs_off: whether the best files are measured once more beside each other, as where latency is minimized.
    """

    threads: tuple[int, ...] = (1,)
    seconds: float = 1.0
    accelerators: int = 0
    runs_off: bool = False

    @property
    def together(self) -> int:
        """How many files are measured in one interleaved round, besides the float model."""
        return max(1, min(TOGETHER, MOST_TOGETHER // len(self.threads) - 1))

    def latency_s(self, files: int, run_s: float) -> float:
        """Return about how long the latencies of files take, each of which runs for ``run_s``, and of the float model."""
        groups = -(-files // self.together)
        each_s = max(self.seconds, FEWEST_ROUNDS * run_s) + max(3 * WARM_WINDOW_S, 3 * run_s)
        return (files + groups) * len(self.threads) * each_s

    def all_s(self, files: int, run_s: float, held_out: int, workers: int) -> float:
        """Return about how long all takes that follows the trying: latencies, the held-out split, accelerators, layers."""
        front = min(files, FRONT)
        tried = min(files, ACCELERATED) * self.accelerators * (START_S + 2 * self.seconds)
        explained = EXPLAINED_RUNS * run_s
        timed = self.latency_s(files, run_s)
        if self.runs_off:
            timed += self.latency_s(min(files, self.together), run_s)
        return timed + (1 + front) * held_out * run_s / workers + tried + explained


def thread_counts(cores: int) -> tuple[int, ...]:
    """Return the numbers of threads that are worth a try.

    Example:
        >>> thread_counts(1), thread_counts(2), thread_counts(6)
        ((1,), (1, 2), (1, 2, 4, 6))
    """
    return tuple(sorted({1, *(min(count, cores) for count in (2, 4, 8))}))
