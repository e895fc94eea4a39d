# SPDX-License-Identifier: Apache-2.0
"""What a search costs, said before: close to what it takes, and told first; and a time limit that measuring fits into."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tune.conftest import OPTIONS, Command

from litesmith import quantize, samples
from litesmith.tune import Budget, Plan, Tuned
from litesmith.tune._journal import Journal
from litesmith.tune._measuring import Measuring, thread_counts
from litesmith.tune._plan import CHECKPOINT, FILE, MakePlan
from litesmith.tune._question import Question
from litesmith.tune._search import Search
from litesmith.tune._tune import ask
from litesmith.tune._workers import LocalWorkers

JOB = MakePlan(("float16", "dynamic"), (), 2, everything=False, sparsity=False, budget=Budget(), train_epochs=None, measuring=Measuring())  # fmt: skip


@pytest.fixture(scope="module")
def question() -> Question:
    asked, _ = ask(samples.path(), samples.dataset("test"), limit=64)
    return asked


def _measuring_s(planned: Plan) -> float:
    return sum(s.seconds for s in planned.stages if s.name == "latency and held-out")


def test_time_follows_what_is_measured(question: Question) -> None:
    plans = [
        replace(JOB, measuring=Measuring(threads, seconds, accelerators)).answer(question)
        for threads, seconds, accelerators in (((1,), 1.0, 0), ((1, 2, 4), 1.0, 0), ((1,), 30.0, 0), ((1,), 1.0, 10))
    ]
    once, threads, long, accelerators = map(_measuring_s, plans)

    assert 3 < once < 10
    assert threads == pytest.approx(3 * once, rel=0.2)
    assert 3 * 30 < long < 5 * 30
    assert accelerators - once == pytest.approx(3 * 10 * 3.5, rel=0.2), "three files on ten accelerators"
    assert thread_counts(2) == (1, 2)


def test_what_is_tried_if_needed_is_also_measured_if_needed(question: Question) -> None:
    planned = replace(JOB, everything=True, sparsity=True).answer(question)
    sure, maybe = (s for s in planned.stages if s.name == "latency and held-out")

    assert not sure.if_needed
    assert maybe.if_needed
    assert maybe.seconds > planned.trials[1] - planned.trials[0]


def test_disk_has_the_copies_of_the_front_and_the_states_of_trainings(finished: Tuned, question: Question) -> None:
    from litesmith.tune._plan import _disk_bytes

    folder = Path(finished.folder)
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix == ".tflite")
    planned = replace(JOB, recipes=("float16", "dynamic", "int16x8")).answer(question)
    size = len(question.model)

    assert used <= planned.disk_bytes <= 4 * used
    assert _disk_bytes(size, 10, 2) - _disk_bytes(size, 10, 0) == 2 * CHECKPOINT * size
    assert _disk_bytes(size, 11, 0) - _disk_bytes(size, 10, 0) == pytest.approx(FILE * size, abs=1)


def test_memory_is_about_what_a_worker_takes(tmp_path: Path) -> None:
    """On a model of 40 MB, so that its copies weigh more than Python does."""
    program = """
import json, resource, sys
import numpy as np
from litesmith import Dataset, tune, zoo
zoo.build("mobilenet_v2", width=1.3, resolution=96).save("m.tflite")
data = Dataset.from_arrays(np.random.default_rng(0).random((12, 96, 96, 3), np.float32))
plans = []
tune("m.tflite", data, output="run", only=("float16", "dynamic"), workers=1, seconds=0.05, on_plan=plans.append)
used = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([plans[0].memory_bytes, used]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    planned, used = json.loads(done.stdout)
    assert 0.5 * used < planned < 4 * used


def test_memory_grows_with_workers_and_with_files_measured_at_once(question: Question) -> None:
    one, many = (replace(JOB, workers=n).answer(question).memory_bytes for n in (1, 8))
    wide = replace(JOB, workers=1, measuring=Measuring((1, 2, 4, 8))).answer(question).memory_bytes

    assert many > 6 * one * 0.9
    assert wide > one


def test_the_plan_is_told_before_anything_is_tried(litesmith: Command) -> None:
    words = ("tune", samples.path(), "--data", samples.path("fashion-test.npz"), *OPTIONS, "--only", "float16")
    told = litesmith(*words, "-o", "run", "--workers", 1)
    as_json = litesmith(*words, "-o", "run", "--workers", 1, "--json")

    assert told.stdout.startswith("plan: trials 2, time about "), told.stdout + told.stderr
    assert "\ntop1 on 256 samples of fashion-test.npz; bounds: " in told.stdout
    assert "memory" in told.stdout.partition("top1 on")[0]
    assert "disk" in told.stdout.partition("top1 on")[0]
    assert Tuned.from_json(as_json.stdout).winner is not None
    assert "plan: trials 2, time about" in as_json.stderr


def test_the_plan_knows_the_time_limit(litesmith: Command) -> None:
    words = ("tune", samples.path(), "--data", samples.path("fashion-test.npz"), *OPTIONS, "--plan")
    short, long = (litesmith(*words, "--time", limit) for limit in ("30s", "10h"))

    assert "cut short so that it ends after about 30 s" in " ".join(short.stdout.split()), short.stdout + short.stderr
    assert "cut short" not in long.stdout


def test_a_file_that_is_quantized_already_is_told(litesmith: Command, tmp_path: Path) -> None:
    quantize(samples.model(), scheme="dynamic").model.save(tmp_path / "small.tflite")
    words = ("tune", "small.tflite", "--data", samples.path("fashion-test.npz"), *OPTIONS, "--only", "float16")
    told = " ".join(litesmith(*words).stdout.split())

    assert "! failed: float16: the model is quantized already" in told
    assert "! the row 'float' is the file as it was given" in told
    assert "the float model here" not in told


@pytest.mark.parametrize(("seconds", "tried"), [(0.05, 1), (600.0, 0)])
def test_a_time_limit_leaves_time_to_measure(question: Question, tmp_path: Path, seconds: float, tried: int) -> None:
    """Half an hour is enough to try float16, but not to measure it for ten minutes with each of four numbers of threads."""
    workers, journal = LocalWorkers(question, 1), Journal(tmp_path / "trials.jsonl")
    try:
        search = Search(
            question,
            workers,
            workers,
            journal,
            tmp_path,
            Budget(minimize="size"),
            key="k",
            deadline=time.monotonic() + 1800,
            measuring=Measuring((1, 2, 4, 8), seconds),
        )
        search.baseline()
        found = search.run("schemes", ["float16"])
    finally:
        workers.close()
        journal.close()

    assert len(found) == tried
    assert search.left_out == [("float16", "no time left")] * (1 - tried)
