# SPDX-License-Identifier: Apache-2.0
"""A search whose latencies are measured on a device: a real ssh connection, to a server of the test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.devices.conftest import Server, assert_nothing_is_left, board, free_port, server
from tests.tune.conftest import Command, quick_tune

from litesmith import samples
from litesmith.devices import Device
from litesmith.errors import DeviceError, UsageError
from litesmith.tune import Tuned, gate
from litesmith.tune._jobs import Failure, Measure
from litesmith.tune._lock import read_lock
from litesmith.tune._meter import DeviceMeter
from litesmith.tune._tune import ask

__all__ = ["board", "server"]  # fixtures


def test_every_candidate_is_measured_there_and_the_lock_says_so(board: Device, tmp_path: Path, finished: Tuned) -> None:
    result = quick_tune(tmp_path / "run", workers=1, device=board, accelerators=False)
    lock = read_lock(tmp_path / "run" / "litesmith.lock")

    assert result.device == lock.device == "ssh://board"
    assert all(trial.timing is not None for trial in result.trials if trial.status == "done")
    assert lock.measured_on == result.machine
    assert lock.machine.versions.items() >= finished.machine.versions.items()
    assert result.layers, "the winner was not profiled there"
    assert [t.file for t in result.trials] == [t.file for t in finished.trials], (
        "where it is measured changes the files"
    )
    assert not {t.key for t in result.trials} & {t.key for t in finished.trials}, (
        "timings of two machines would be mixed"
    )
    assert_nothing_is_left(board)


def test_a_device_that_cannot_be_reached_is_told_before_the_search(
    board: Device, server: Server, tmp_path: Path
) -> None:
    gone = replace(board, ssh_config=str(server.config(port=free_port())))

    with pytest.raises(DeviceError, match="cannot be reached"):
        quick_tune(tmp_path / "run", device=gone)

    assert not (tmp_path / "run").exists()


def test_a_file_that_fails_there_is_a_finding_and_a_device_that_is_gone_ends_the_search(
    board: Device, server: Server
) -> None:
    gone = replace(board, ssh_config=str(server.config(port=free_port())))
    question, _ = ask(samples.path(), samples.path("fashion-test.npz"), "scale=1/255")

    here, away = (DeviceMeter(replace(question, device=device)) for device in (board, gone))
    for meter in (here, away):
        meter.submit(7, Measure((b"no model",), (1,), 0.05))

    ticket, answer = here.next()
    assert ticket == 7
    assert isinstance(answer, Failure)
    assert answer.reason
    with pytest.raises(DeviceError, match="cannot be reached"):
        away.next()


def test_gate_measures_on_the_device_of_the_lock(board: Device, finished: Tuned) -> None:
    lock = Path(finished.folder) / "litesmith.lock"

    result = gate(lock, fail_if=("latency>10000ms",), seconds=0.05, device=board)

    assert result.passed
    assert result.checks[0].note.endswith("on board")


def test_a_phone_has_no_single_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no single runs"):
        quick_tune(tmp_path / "run", device=Device("phone", "adb://1"))


def test_the_command_line(litesmith: Command, board: Device, tmp_path: Path) -> None:
    table = {
        "url": board.url,
        "python": board.python,
        "runtime": board.runtime,
        "folder": board.folder,
        "lock": board.lock,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**table, "ssh_config": board.ssh_config}.items()]
    (tmp_path / "devices.toml").write_text("[board]\n" + "\n".join(lines))
    data = samples.path("fashion-test.npz")
    words = [samples.path(), "--data", data, "--preprocess", "scale=1/255", "--limit", 64, "--only", "float16"]

    done = litesmith("tune", *words, "--seconds", 0.05, "--device", "board", "--devices", "devices.toml", "-o", "run")

    assert done.returncode in (0, 1), done.stderr
    assert "ms were measured on ssh://board" in " ".join(done.stdout.split())
