# SPDX-License-Identifier: Apache-2.0
"""How many threads, quiet and under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from litesmith.errors import MeasureError, UsageError
from litesmith.measure import ThreadCount, Threads, _timing, threads
from litesmith.measure._energy import EnergyMeter
from litesmith.measure._load import _BUSY, background_load
from litesmith.measure._threads import _limit_s, recommend


def test_every_number_is_measured_quiet_and_loaded(tiny: Path) -> None:
    result = threads(tiny, counts=[1, 2], seconds=0.1)

    assert set(result.of("quiet")) == set(result.of("loaded")) == {1, 2}
    assert all(count.cpu_ms > 0 and count.samples_ms for count in result.counts)
    assert [advice.purpose for advice in result.advice] == ["latency", "efficiency", "robustness"]
    assert result.background >= 1
    assert Threads.from_json(result.to_json()) == result
    assert len(result.plot().data) == 4


def _count(threads: int, condition: str, median: float, p95: float, cpu: float = 1.0) -> ThreadCount:
    return ThreadCount(threads, condition, (median,) * 90 + (p95,) * 10, cpu, None)


def test_the_case_where_more_threads_lose_under_load_is_said() -> None:
    advice = recommend(
        [
            _count(1, "quiet", 10.0, 10.0, cpu=10.0),
            _count(2, "quiet", 6.0, 6.0, cpu=12.0),
            _count(1, "loaded", 11.0, 12.0),
            _count(2, "loaded", 9.0, 30.0),
        ]
    )

    latency, efficiency, robustness = advice
    assert (latency.threads, efficiency.threads, robustness.threads) == (2, 1, 1)
    assert "2 threads, the best when quiet, take 2.5 times as long there" in robustness.reason


def test_a_gain_too_small_to_matter_does_not_buy_more_threads() -> None:
    advice = recommend([_count(1, "quiet", 10.0, 10.0), _count(2, "quiet", 9.8, 9.8)])

    assert advice[0].threads == 1
    assert len(advice) == 2, "nothing is said about a load that was not measured"


@pytest.mark.parametrize(
    "options", [{"counts": [0]}, {"counts": [1, 1]}, {"background": 0}, {"background": 10_000}, {"seconds": 0.0}]
)
def test_numbers_that_make_no_sense_are_refused(tiny: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        threads(tiny, **options)  # type: ignore[arg-type]


def test_ctrl_c_under_load_keeps_the_quiet_half(tiny: Path, interrupt: Callable[..., None]) -> None:
    interrupt(_timing, "time_for", 21)  # two subjects, ten rounds each: the first round under load

    result = threads(tiny, counts=[1, 2], seconds=0.05)

    assert not result.complete
    assert set(result.of("quiet")) == {1, 2}
    assert result.of("loaded") == {}


def test_the_load_ends_with_the_block_and_when_we_die() -> None:
    with background_load(2, limit_s=60):
        pass

    process = subprocess.Popen([sys.executable, "-S", "-c", _BUSY, "60"], stdin=subprocess.PIPE)
    assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0


def test_the_load_is_bounded_in_time() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", _BUSY, "0.1"], stdin=subprocess.PIPE)

    assert process.wait(timeout=60) == 0, "it ends although its input stays open"
    assert process.stdin is not None
    process.stdin.close()


def test_a_load_that_ends_before_the_measurement_is_told() -> None:
    with (
        pytest.raises(MeasureError, match="1 of 1 processes of the background load ended before"),
        background_load(1, limit_s=0.01),
    ):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)


def test_the_load_may_last_for_much_longer_than_the_quiet_half() -> None:
    minutes = 60.0
    assert _limit_s(0.1, 0.5) > minutes
    assert _limit_s(10 * minutes, 0.5) > 3 * 10 * minutes + minutes
    assert _limit_s(10 * minutes, 4) > 5 * 3 * 10 * minutes, "with four processes a core, a thread gets a fifth of it"


def test_ctrl_c_does_not_end_the_load() -> None:
    """A terminal sends it to all processes, and the measurement under load is ended by us."""
    process = subprocess.Popen([sys.executable, "-S", "-c", _BUSY, "10"], stdin=subprocess.PIPE)
    status, ignored = Path(f"/proc/{process.pid}/status"), 0
    while not ignored & 1 << signal.SIGINT - 1 and process.poll() is None:
        time.sleep(0.01)
        ignored = next(int(line.split()[1], 16) for line in status.read_text().splitlines() if "SigIgn" in line)

    process.send_signal(signal.SIGINT)

    assert process.returncode is None, "it never ignored it"
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0


def test_energy_counts_also_over_the_end_of_the_counter(tmp_path: Path) -> None:
    (tmp_path / "energy_uj").write_text("900")
    (tmp_path / "max_energy_range_uj").write_text("1000")
    meter = EnergyMeter(tmp_path)
    (tmp_path / "energy_uj").write_text("100")

    assert meter.joules() == pytest.approx(200e-6)


def test_no_energy_is_said_and_not_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no RAPL" in EnergyMeter(tmp_path).problem
    assert EnergyMeter(tmp_path).joules() is None

    (tmp_path / "energy_uj").write_text("900")

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "sudo chmod" in EnergyMeter(tmp_path).problem
