# SPDX-License-Identifier: Apache-2.0
"""Candidates that are trained: planned where they make sense, on samples that are not scored, made again to the byte."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.conftest import trial
from tests.tune.conftest import OPTIONS, Command, quick_tune

from litesmith import Dataset, samples
from litesmith.errors import DataError, MissingExtraError, RecipeError, UsageError
from litesmith.optimize import Coverage, Recipe
from litesmith.report import report
from litesmith.tune import Budget, Lock, Trial, Tuned, gate, plan, reproduce
from litesmith.tune._journal import Journal
from litesmith.tune._question import Question
from litesmith.tune._search import Search
from litesmith.tune._training import Proposal, Way, _takes_as_much, proposals, search_training
from litesmith.tune._tune import ask
from litesmith.tune._workers import LocalWorkers

pytest.importorskip("torch", reason="the extra train is not installed")

TRAINED = "train(int8, epochs=1)"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty samples to train on."""
    path = tmp_path_factory.mktemp("train") / "train.npz"
    with np.load(samples.path("fashion-train.npz")) as stored:
        np.savez(path, x=stored["x"][:60], y=stored["y"][:60])
    return path


@pytest.fixture(scope="session")
def trained(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A search that a trained file wins: float16 is larger."""
    folder = tmp_path_factory.mktemp("tune") / "trained"
    return quick_tune(folder, only=("float16", TRAINED), train=images, max_drop="20%", workers=1)


# ---------------------------------------------------------------------- the step


@pytest.mark.parametrize(
    "text",
    [
        "train(int8, epochs=5)",
        "train(int8, prune=0.8, 4x1, sparse, epochs=16, seed=3)",
        "train(channels=0.5, epochs=16) → float16",
        "channels(0.9) → train(mixed, cluster=32, learning_rate=0.001, distill=yes)",
        "train(int8, io=int8, augment=flip shift=2) + float:SOFTMAX",
    ],
)
def test_the_step_is_read_and_written_without_loss(text: str) -> None:
    recipe = Recipe.parse(text)

    assert str(recipe) == text
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert recipe.trains


def test_the_step_is_known_without_an_import_of_tune() -> None:
    code = "from litesmith import Recipe; import sys; print(Recipe.parse('train(int8)'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["train(int8)", "False"]


def test_what_makes_no_sense_is_refused() -> None:
    model, data = samples.model(), samples.dataset("train").take(30)

    with pytest.raises(RecipeError, match="comes after 'prune'"):
        Recipe.parse("prune(0.5) → train(int8)").apply(model, data)
    with pytest.raises(RecipeError, match="add prune="):
        Recipe.parse("train(int8, 4x1)").apply(model, data)
    with pytest.raises(RecipeError, match="samples to train on"):
        Recipe.parse("train(int8)").apply(model)


# ---------------------------------------------------------------------- what is proposed


def _recipes(found: list[Proposal]) -> list[str]:
    return [p.recipe for p in found]


def test_each_goal_has_its_own_trainings() -> None:
    way = Way()

    assert _recipes(proposals(Budget(minimize="latency"), way)) == [
        "train(int8, channels=0.75, epochs=16)",
        "train(int8, channels=0.5, epochs=16)",
    ]
    assert proposals(Budget(minimize="drop"), way) == []
    small = _recipes(proposals(Budget(minimize="size"), way))
    assert "train(int8, prune=0.8, 4x1, sparse, epochs=16)" in small
    assert not any("cluster" in recipe for recipe in small), "shared values do not make the file itself smaller"
    download = _recipes(proposals(Budget(minimize="download"), way))
    assert download[0] == "train(int8, cluster=32, epochs=5)"
    assert "train(int8, prune=0.8, unstructured, cluster=32, epochs=16)" in download
    assert proposals(Budget(minimize="latency"), way, too_large=True) == proposals(Budget(minimize="size"), way)
    in_float = _recipes(proposals(Budget(minimize="latency"), Way(epochs=2, qat="")))
    assert in_float[0] == "train(prune=0.8, 4x1, epochs=2)", "zeros make float layers faster, not int8 ones"


class Recorder:
    """A search that answers at once, with the drops it is told."""

    def __init__(self, minimize: str, known: dict[str, float], drops: dict[str, float]) -> None:
        self.question = Question(b"", *[samples.dataset("test")] * 3, "top1", train=samples.dataset("train"))
        self.budget = Budget(minimize=minimize)
        self.drop_bound = 0.01
        self.left_out: list[tuple[str, str]] = []
        self.left_s = float("inf")
        self.rounds: list[list[str]] = []
        self._drops = drops
        self.trials: dict[int, Trial] = {0: trial(0, "", 0.92, 1.0, 1000)}
        self._add(known)

    def _add(self, drops: dict[str, float]) -> list[Trial]:
        first = len(self.trials)
        made = [trial(first + n, recipe, 0.92 - drop, 1.0, 500) for n, (recipe, drop) in enumerate(drops.items())]
        self.trials.update({t.number: t for t in made})
        return made

    def knows(self, recipe: str) -> bool:
        return False

    def run(self, stage: str, recipes: list[str]) -> list[Trial]:
        assert stage == "training"
        self.rounds.append(recipes)
        return self._add({recipe: self._drops.get(recipe, 0.0) for recipe in recipes})


def _searched(minimize: str, known: dict[str, float], drops: dict[str, float] | None = None) -> Recorder:
    search = Recorder(minimize, known, drops or {})
    search_training(search, None)  # type: ignore[arg-type]
    return search


def test_int8_is_trained_only_where_it_loses_much_without() -> None:
    good, bad = _searched("latency", {"int8": 0.002}), _searched("latency", {"int8": 0.008, "int8(mse)": 0.007})

    assert good.rounds == [["train(int8, channels=0.75, epochs=16)"], ["train(int8, channels=0.5, epochs=16)"]]
    assert ("train(int8, epochs=5)", "int8 loses 0.002 without, of 0.01 that are allowed") in good.left_out
    assert bad.rounds[0] == ["train(int8, epochs=5)"]


def test_what_takes_away_more_needs_less_to_be_within_the_bound() -> None:
    search = _searched("latency", {"int8": 0.0}, {"train(int8, channels=0.75, epochs=16)": 0.05})

    assert search.rounds == [["train(int8, channels=0.75, epochs=16)"]]
    reason = "train(int8, channels=0.75, epochs=16) already loses more than is allowed, or failed"
    assert search.left_out[-1] == ("train(int8, channels=0.5, epochs=16)", reason)


def test_training_is_pointless_where_as_much_went_without() -> None:
    search = _searched("latency", {"int8": 0.0, "channels(0.8) → int8": 0.004})

    assert search.rounds == [["train(int8, channels=0.5, epochs=16)"]], "what takes away more is still worth it"
    assert "channels(0.8) → int8 takes as much away without training" in search.left_out[1][1]


def test_where_int8_is_beyond_the_bound_float_is_trained() -> None:
    search = _searched("size", {"int8": 0.5, "float16": 0.0, "weights8": 0.02}, {"train(int8, epochs=5)": 0.4})

    assert search.rounds[0] == ["train(int8, epochs=5)"]
    assert all("int8" not in recipe for recipe in search.rounds[1])
    assert search.rounds[1] == [
        "train(prune=0.8, 4x1, sparse, epochs=16)",
        "train(prune=0.8, unstructured, sparse, epochs=16)",
        "train(channels=0.75, epochs=16) → float16",
    ]


def test_for_size_fewer_channels_have_the_smallest_format() -> None:
    search = Recorder("size", {"int8": 0.0}, {})
    search.trials[2] = trial(2, "weights4", 0.92, 1.0, 400)
    search_training(search, None)  # type: ignore[arg-type]

    assert search.rounds[0][-1] == "train(channels=0.75, epochs=16) → weights4"
    assert "train(int8, prune=0.8, 4x1, sparse, epochs=16)" in search.rounds[0]


# ---------------------------------------------------------------------- samples to train on


def _contents(data: Dataset) -> set[bytes]:
    return {sample.x.astype(np.float32).tobytes() for sample in data}


def test_no_sample_that_is_scored_is_trained_on(tmp_path: Path) -> None:
    with np.load(samples.path("fashion-test.npz")) as test, np.load(samples.path("fashion-train.npz")) as train:
        mixed = np.concatenate([test["x"][:40], train["x"][:40]])
        np.savez(tmp_path / "stored.npz", x=mixed)
        scaled = mixed[..., None].astype(np.float32) * np.float32(1 / 255)  # the same images as the model reads them
    model, data = samples.path(), samples.path("fashion-test.npz")
    stored, _ = ask(model, data, "scale=1/255", limit=100, train=tmp_path / "stored.npz")
    read, _ = ask(model, data, "scale=1/255", limit=100, train=Dataset.from_arrays(scaled))
    whole, _ = ask(model, data, "scale=1/255")

    for question in (stored, read):
        assert question.train is not None
        assert 0 < question.untrained <= 40
        assert len(question.train) == 80 - question.untrained
        assert not _contents(question.train) & (_contents(whole.search) | _contents(whole.held_out))
    assert stored.untrained == read.untrained
    assert stored.digest() == ask(model, data, "scale=1/255", limit=100)[0].digest()
    itself, _ = ask(model, data, "scale=1/255", train=data)
    assert itself.train is not None
    assert len(itself.train) == 4000 - len(whole.search) - len(whole.held_out), (
        "what is not scored on can be trained on"
    )
    parts = itself.train.split(train=0.9, validation=0.1)  # as training does
    assert 0.05 < len(parts["validation"]) / len(itself.train) < 0.2
    with pytest.raises(DataError, match="are also scored on, which leaves"):
        ask(model, data, "scale=1/255", train=whole.search)


def test_the_order_of_the_samples_does_not_matter(images: Path) -> None:
    data = Dataset.open(images, preprocess="scale=1/255")
    one, two = (
        ask(samples.path(), samples.dataset("test"), limit=100, train=part)[0].train
        for part in (data, data.shuffled(1))
    )
    assert one is not None
    assert two is not None

    assert [a.x.tobytes() for a in one] == [b.x.tobytes() for b in two]


def test_labels_and_classes_are_those_of_the_data(images: Path) -> None:
    model, data = samples.path(), samples.dataset("test")
    shifted, _ = ask(model, data, limit=100, label_offset=1, train=images)
    plain, _ = ask(model, data, limit=100, train=images)
    assert shifted.train is not None
    assert plain.train is not None

    assert list(shifted.train.labels - 1) == list(plain.train.labels)  # type: ignore[arg-type, operator]
    assert plain.train.preprocess == data.preprocess, "what is done to the data is done to a path, too"
    named = Dataset.from_arrays(np.zeros((30, 28, 28), np.float32), ["a"] * 30, class_names=["a", "b"])
    other = Dataset.from_arrays(
        np.ones((90, 28, 28), np.float32) * np.arange(90)[:, None, None], ["a"] * 90, class_names=["b", "a"]
    )
    with pytest.raises(DataError, match="class 0 is 'a', and 'b'"):
        ask(model, other, train=named)
    with pytest.raises(UsageError, match="a Dataset with labels"):
        ask(model, data, label_offset=1, train=samples.dataset("train"))


def test_mistakes_are_told(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, words in (
        ({"only": (TRAINED,)}, "no samples to train on"),
        ({"train_epochs": 2}, "nothing is trained"),
        ({"train_epochs": 0, "train": images}, "must be 1 or more"),
    ):
        with pytest.raises(UsageError, match=words):
            quick_tune(tmp_path, **options)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"litesmith\[train\]"):
        quick_tune(tmp_path, train=images)


# ---------------------------------------------------------------------- a search


def test_a_trained_file_wins_and_is_made_again_byte_for_byte(trained: Tuned, images: Path, tmp_path: Path) -> None:
    folder, winner = Path(trained.folder), trained.winner
    assert winner is not None
    assert winner.recipe == TRAINED
    lock = Lock.from_json(folder / "litesmith.lock")
    again = reproduce(folder / "litesmith.lock", tmp_path / "again.tflite")

    assert again.read_bytes() == (folder / "winner.tflite").read_bytes()
    assert Recipe.from_toml(folder / "recipe.toml") == Recipe.parse(TRAINED)
    assert lock.train_hash
    assert lock.machine.versions["torch"] == importlib.metadata.version("torch")
    assert lock.origin.train == os.path.relpath(images, folder)
    with pytest.raises(DataError, match="the training samples are not those of the lock"):
        reproduce(folder / "litesmith.lock", tmp_path / "x.tflite", train=samples.path("fashion-train.npz"))
    assert not (tmp_path / "x.tflite").exists()
    assert gate(folder / "litesmith.lock", latency=False).passed, "it needs no samples to train on"
    assert TRAINED in report(trained, tmp_path / "report.html").read_text()


def test_samples_that_only_a_program_has_are_asked_for(trained: Tuned, images: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "copy")
    lock = Lock.from_json(Path(trained.folder) / "litesmith.lock")
    origin = replace(lock.origin, model=str(samples.path()), data=str(samples.path("fashion-test.npz")), train=None)
    (folder / "litesmith.lock").write_text(replace(lock, origin=origin).to_json())

    with pytest.raises(UsageError, match="give train="):
        reproduce(folder / "litesmith.lock", tmp_path / "x.tflite")
    again = reproduce(folder / "litesmith.lock", tmp_path / "x.tflite", train=images)
    assert again.read_bytes() == (folder / "winner.tflite").read_bytes()


def test_nothing_is_repeated_but_what_other_samples_train(trained: Tuned, images: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.folder, tmp_path / "copy")
    options: dict[str, Any] = {"only": ("float16", TRAINED), "max_drop": "20%", "workers": 2}
    same = quick_tune(folder, train=images, **options)
    other = quick_tune(folder, train=Dataset.open(images, preprocess="scale=1/255")[:50], **options)
    before = {t.recipe: (t.build_s, t.file) for t in trained.trials}

    assert {t.recipe: (t.build_s, t.file) for t in same.trials} == before
    assert {t.recipe: (t.build_s, t.file) for t in other.trials[:2]} == {r: before[r] for r in ("", "float16")}
    assert other.trials[2].file != before[TRAINED][1]
    assert not list((folder / "files").glob("*checkpoint*"))


def test_a_plan_has_the_trainings_and_their_time(images: Path, litesmith: Command) -> None:
    planned = plan(samples.path(), samples.dataset("test"), limit=64, train=images, minimize="download", train_epochs=1)
    without = plan(samples.path(), samples.dataset("test"), limit=64)
    (stage,) = [s for s in planned.stages if s.name == "training"]

    assert stage.if_needed
    assert stage.trials == len(stage.candidates) > 3
    assert stage.candidates[0].startswith("train(int8, epochs=1): ")
    assert stage.seconds > 0
    assert planned.memory_bytes > without.memory_bytes
    assert "training" not in [s.name for s in without.stages]
    words = ["--data", samples.path("fashion-test.npz"), "--train", images, "--train-epochs", 1, "--plan"]
    shown = litesmith("tune", samples.path(), "--preprocess", "scale=1/255", *words)
    assert shown.returncode == 0, shown.stderr
    assert "train(int8, channels=0.75, epochs=1)" in shown.stdout


def _run(question: Question, folder: Path, budget: Budget, *, seconds: float, epochs: int | None) -> Search:
    workers, journal = LocalWorkers(question, 1), Journal(folder / "trials.jsonl")
    try:
        deadline = time.monotonic() + seconds
        search = Search(question, workers, workers, journal, folder, budget, key="k", deadline=deadline)
        search.baseline()
        search_training(search, epochs)
    finally:
        workers.close()
        journal.close()
    return search


def test_what_the_time_does_not_allow_is_not_begun(images: Path, tmp_path: Path) -> None:
    question, _ = ask(samples.path(), samples.dataset("test"), limit=100, train=images)
    search = _run(question, tmp_path, Budget(max_drop=0.01), seconds=300, epochs=100_000)
    reasons = dict(search.left_out)

    assert list(search.trials) == [0]
    assert "s are left" in reasons["train(int8, epochs=100000)"]


@dataclass(frozen=True)
class Crashing(Question):
    """A question whose trainings crash the process."""

    def made_with_coverage(self, recipe: str, checkpoint: Path | None = None) -> tuple[bytes, Coverage | None]:
        if "train" in recipe:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().made_with_coverage(recipe, checkpoint)


def test_a_training_that_crashes_is_recorded(images: Path, tmp_path: Path) -> None:
    asked, _ = ask(samples.path(), samples.dataset("test"), limit=100, train=images)
    question = Crashing(**{f.name: getattr(asked, f.name) for f in fields(asked)})
    search = _run(question, tmp_path, Budget(max_drop=0.2, minimize="drop"), seconds=600, epochs=1)
    (crashed,) = [t for t in search.trials.values() if t.number]

    assert (crashed.recipe, crashed.status) == (TRAINED, "failed")
    assert "SIGSEGV" in crashed.reason


def _processes(folder: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_training_that_is_killed_goes_on_and_ends_with_the_same_file(images: Path, tmp_path: Path) -> None:
    recipe = "train(int8, epochs=12, batch=16)"
    words = [samples.path(), "--data", samples.path("fashion-test.npz"), *OPTIONS, "--only", recipe, "--train", images]
    command = [sys.executable, "-m", "litesmith", "tune", *map(str, words), "--workers", "1", "-o", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("run/files/*.checkpoint-*")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    ends = time.monotonic() + 30
    while _processes(tmp_path) and time.monotonic() < ends:
        time.sleep(0.1)
    states = list(tmp_path.glob("run/files/*.checkpoint-*"))
    left = _processes(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    question, _ = ask(samples.path(), samples.path("fashion-test.npz"), "scale=1/255", limit=256, train=images)
    result = Tuned.from_json(tmp_path / "run/tune.json")

    assert not left, "workers end with the search that was killed"
    assert states, "it was killed in the middle of a training"
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"run/files/{result.trials[1].file}.tflite").read_bytes() == question.made(recipe)
    assert not list(tmp_path.glob("run/files/*checkpoint*"))


def test_the_download_can_be_minimized(tmp_path: Path) -> None:
    result = quick_tune(tmp_path, minimize="download", only=("float16", "dynamic"), workers=1)
    best = min(result.trials, key=lambda t: t.download_bytes)

    assert result.winner == best
    assert all(0 < t.download_bytes < t.size_bytes for t in result.trials)
    assert "least download" in " ".join(result.verdict.reasons)
    again = quick_tune(tmp_path, minimize="size", only=("float16", "dynamic"), workers=1)
    assert {t.recipe: t.build_s for t in again.trials} == {t.recipe: t.build_s for t in result.trials}
    assert not any(t.download_bytes for t in again.trials), "the front is of files again"


@pytest.mark.parametrize(
    ("channels", "takes_as_much"),
    [("0.7", True), ("0.9", False), ("max_macs=0.5", True), ("max_macs=0.8", False), ("max_latency_ms=1", False)],
)
def test_channels_that_went_without_training_need_none(channels: str, takes_as_much: bool) -> None:
    done = Recipe.parse(f"channels({channels}) → int8").steps
    assert _takes_as_much(done, Recipe.parse("train(int8, channels=0.5)").steps) is takes_as_much
