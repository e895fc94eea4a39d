# SPDX-License-Identifier: Apache-2.0
"""A real Dask scheduler and workers on loopback: the same trials as in processes of this machine, also when one dies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.tune.conftest import QUICK, quick_tune

from litesmith import samples
from litesmith.errors import DeviceError
from litesmith.tune import Lock, Tuned, gate
from litesmith.tune._question import content_hash
from litesmith.tune._tune import ask

pytest.importorskip("distributed", reason="the extra cluster is not installed")


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        scheduler, words = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.address = words
        self.scheduler = scheduler

    def _start(self, *words: str, before: Sequence[str] = ()) -> tuple[subprocess.Popen[str], str]:
        command = [*before, sys.executable, "-m", "dask", *words]
        process = subprocess.Popen(command, cwd=self._folder, stderr=subprocess.PIPE, text=True)
        self._processes.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"(?:Scheduler at|Registered to):\s+(tcp://\S+)", line)
            if found:
                threading.Thread(target=process.stderr.read, daemon=True).start()  # keep its pipe empty
                return process, found[1]
        raise AssertionError(f"{words[0]} did not start")

    def worker(self, *more: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(self._folder)]
        return self._start("worker", self.address, *options, *more, before=before)[0]

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_cluster_finds_the_same_also_when_a_worker_dies(cluster: Cluster, finished: Tuned, tmp_path: Path) -> None:
    cluster.worker("--resources", "latency=1")
    mortal = cluster.worker()
    journal = tmp_path / "run/trials.jsonl"

    def kill_one_mid_run() -> None:
        while not journal.exists() or not journal.read_text():
            time.sleep(0.01)
        os.kill(mortal.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one_mid_run)
    killer.start()
    result = quick_tune(tmp_path / "run", cluster=cluster.address)
    killer.join()

    assert mortal.wait() == -signal.SIGKILL
    assert result.workers == 2
    assert [(t.recipe, t.status, t.file, t.score) for t in result.trials] == [
        (t.recipe, t.status, t.file, t.score) for t in finished.trials
    ]
    assert result.winner is not None
    assert finished.winner is not None
    assert result.winner.recipe == finished.winner.recipe
    assert all(t.timing is not None for t in result.trials)


def test_the_latency_is_that_of_the_worker_that_measured_it(cluster: Cluster, finished: Tuned, tmp_path: Path) -> None:
    if finished.machine.cores < 2 or shutil.which("taskset") is None:
        pytest.skip("a worker with fewer cores than this process needs two, and taskset")
    core = min(os.sched_getaffinity(0))
    cluster.worker("--resources", "latency=1", before=("taskset", "-c", str(core)))
    result = quick_tune(tmp_path / "run", only=("float16",), cluster=cluster.address)
    lock = Lock.from_json(tmp_path / "run/litesmith.lock")

    assert result.machine.cores == 1
    assert lock.meter == result.machine
    assert lock.machine.cores == finished.machine.cores
    assert all(not t.threads for t in result.trials), "it has one core"
    assert not {t.key for t in result.trials} & {t.key for t in finished.trials}, "timings of two machines are mixed"
    assert any("a worker of the cluster" in note for note in result.notes)
    check = gate(tmp_path / "run/litesmith.lock", fail_if=("latency>+10%",)).checks[0]
    assert (check.found, check.holds) == (None, False), "this machine is another"


def test_a_cluster_trains_the_same_file(cluster: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")
    cluster.worker("--nthreads", "2")
    recipes = ("train(int8, epochs=1)", "train(int8, epochs=1, seed=1)")
    options: dict[str, Any] = {"only": recipes, "train": samples.dataset("train").take(60), "max_drop": "20%"}
    result = quick_tune(tmp_path / "run", cluster=cluster.address, **options)
    question, _ = ask(samples.path(), samples.dataset("test"), train=options["train"])
    one, two = result.trials[1:]

    assert result.workers == 2
    assert (one.status, one.file) == ("done", content_hash(question.made(recipes[0])))
    assert (two.status, two.file != one.file) == ("done", True)


def _kill_when(path: Path, *victims: subprocess.Popen[str], marks: Sequence[str] = ('"key"',)) -> threading.Thread:
    """Kill processes once a journal has all of some words."""

    def kill() -> None:
        while not path.exists() or not all(mark in path.read_text() for mark in marks):
            time.sleep(0.01)
        for victim in victims:
            victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litesmith.tune._cluster.CHECK_S", 0.1)
    monkeypatch.setattr("litesmith.tune._cluster.PATIENCE_S", 1.0)


@pytest.mark.usefixtures("_impatient")
def test_without_the_worker_that_measures_the_search_ends_and_says_so(
    cluster: Cluster, finished: Tuned, tmp_path: Path
) -> None:
    meter = cluster.worker("--resources", "latency=1")
    cluster.worker()
    journal = tmp_path / "run/trials.jsonl"
    killer = _kill_when(journal, meter, marks=[f'"recipe": "{recipe}"' for recipe in QUICK["only"]])
    with pytest.raises(DeviceError, match=r"measures latency left.*latency=1.*goes on where it was"):
        quick_tune(tmp_path / "run", cluster=cluster.address, seconds=60.0)
    killer.join()
    cluster.worker("--resources", "latency=1")
    again = quick_tune(tmp_path / "run", cluster=cluster.address)

    assert [(t.recipe, t.file) for t in again.trials] == [(t.recipe, t.file) for t in finished.trials]
    assert any("3 trials were finished in an earlier run" in note for note in again.notes), again.notes
    assert all(t.timing is not None for t in again.trials)


@pytest.mark.usefixtures("_impatient")
def test_without_any_worker_the_search_ends_and_says_so(cluster: Cluster, tmp_path: Path) -> None:
    killer = _kill_when(tmp_path / "run/trials.jsonl", cluster.worker(), cluster.worker())
    with pytest.raises(DeviceError, match="has no workers any more; start some"):
        quick_tune(tmp_path / "run", cluster=cluster.address)
    killer.join()

    assert '"baseline"' in (tmp_path / "run/trials.jsonl").read_text(), "what was finished is kept"


@pytest.mark.usefixtures("_impatient")
def test_without_a_scheduler_any_more_the_search_ends_and_says_so(cluster: Cluster, tmp_path: Path) -> None:
    cluster.worker()
    killer = _kill_when(tmp_path / "run/trials.jsonl", cluster.scheduler)
    with pytest.raises(DeviceError, match="does not answer any more"):
        quick_tune(tmp_path / "run", cluster=cluster.address)
    killer.join()


def test_a_cluster_without_workers_is_told(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litesmith.tune._cluster.CONNECT_S", 1)

    with pytest.raises(DeviceError, match="has no workers; start some with `dask worker tcp://"):
        quick_tune(tmp_path, cluster=cluster.address)


def test_an_address_without_a_scheduler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litesmith.tune._cluster.CONNECT_S", 1)

    with pytest.raises(DeviceError, match="no Dask scheduler"):
        quick_tune(tmp_path, cluster="tcp://127.0.0.1:9")
