# SPDX-License-Identifier: Apache-2.0
"""A controlled background load: processes that keep cores busy, for a bounded time, and never outlive us."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# Ends at its deadline, and at once when the pipe to us closes: also when we are killed.
_BUSY = """
import select, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(20000):
        pass
    if select.select([sys.stdin], [], [], 0)[0]:
        break
"""


@contextlib.contextmanager
def background_load(processes: int, *, limit_s: float) -> Iterator[None]:
    """Keep ``processes`` cores busy inside the block, at most for ``limit_s`` seconds."""
    command = [sys.executable, "-S", "-c", _BUSY, str(limit_s)]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(processes)]  # noqa: S603
    try:
        yield
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
