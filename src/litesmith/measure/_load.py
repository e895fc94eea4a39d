# SPDX-License-Identifier: Apache-2.0
"""A controlled background load: processes that keep cores busy, for a bounded time, and never outlive us."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from litesmith.errors import MeasureError

# Ends at its deadline, and at once when the pipe to us closes: also when we are killed. Ctrl-C is for us to handle.
_BUSY = """
import select, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(20000):
        pass
    if select.select([sys.stdin], [], [], 0)[0]:
        break
"""


@contextlib.contextmanager
def background_load(processes: int, *, limit_s: float) -> Iterator[None]:
    """Keep ``processes`` cores busy inside the block, at most for ``limit_s`` seconds.

    Raises:
        MeasureError: The load ended before the block, so that what was measured is in part of a quiet machine.
    """
    command = [sys.executable, "-S", "-c", _BUSY, str(limit_s)]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(processes)]  # noqa: S603
    try:
        yield
        ended = [process.returncode for process in running if process.poll() is not None]
        if ended:
            raise MeasureError(
                f"{len(ended)} of {processes} processes of the background load ended before the measurement did (exit "
                f"code {ended[0]}, limit {limit_s:.0f} s), so its figures are in part of a quiet machine; measure again, "
                "with fewer numbers of threads or a smaller load"
            )
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
        for process in running:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
