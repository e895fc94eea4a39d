# SPDX-License-Identifier: Apache-2.0
"""How much memory a model takes: measured in a process of its own, where nothing else moves the figure.

As a program, `python -m litesmith.measure._memory FILE THREADS KERNELS`, it prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from litesmith.errors import MeasureError

TIME_LIMIT_S = 300


@dataclass(frozen=True)
class MemoryUse:
    """Resident bytes: of the process at its highest, of the process when steady, and what the model added to it."""

    peak_bytes: int
    steady_bytes: int
    model_bytes: int


def memory_use(path: Path, *, threads: int = 1, kernels: str = "delegate") -> MemoryUse:
    """Compile and run a model in a new process and return the memory it took there."""
    command = [sys.executable, "-m", "litesmith.measure._memory", str(path), str(threads), kernels]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise MeasureError(
            f"{path} did not compile and run within {TIME_LIMIT_S} s in the process that measures memory"
        ) from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()
        raise MeasureError(
            f"the process that measures the memory of {path} failed: {reason[-1] if reason else done.returncode}"
        )
    return MemoryUse(**json.loads(done.stdout))


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Return the highest resident memory of this process so far."""
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def _main(path: str, threads: str, kernels: str) -> None:
    from litesmith.runtime import Session, random_inputs
    from litesmith.runtime._selfcheck import TINY_MODEL, why_not_litert

    why_not_litert()
    with Session(TINY_MODEL) as tiny:  # what any first model costs is not this model's
        tiny.run()
    before = resident_bytes()
    with Session(path, threads=int(threads), kernels=kernels) as session:
        session.run(random_inputs(session))
        session.run()
        after = resident_bytes()
    print(json.dumps(asdict(MemoryUse(max(peak_bytes(), after), after, after - before))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
