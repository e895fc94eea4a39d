# SPDX-License-Identifier: Apache-2.0
"""Energy of the CPU package, where the machine tells (RAPL, through Linux's powercap)."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path("/sys/class/powercap/intel-rapl:0")


class EnergyMeter:
    """Joules spent by the CPU package since the meter was made; ``problem`` says why it cannot tell."""

    def __init__(self, package: Path = _PACKAGE) -> None:
        self._counter = package / "energy_uj"
        self._range = package / "max_energy_range_uj"
        self.problem = self._look()
        self._start = 0 if self.problem else self._read()

    def _look(self) -> str:
        if not self._counter.exists():
            return "this machine has no RAPL energy counter"
        try:
            self._read()
        except PermissionError:
            return f"there is no permission to read {self._counter}; allow it with: sudo chmod a+r {self._counter}"
        return ""

    def _read(self) -> int:
        return int(self._counter.read_text())

    def joules(self) -> float | None:
        """Return the joules since the meter was made, None when it cannot tell."""
        if self.problem:
            return None
        spent = self._read() - self._start
        if spent < 0:  # the counter is narrow and starts again
            spent += int(self._range.read_text())
        return spent / 1e6
