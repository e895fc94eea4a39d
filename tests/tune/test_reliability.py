# SPDX-License-Identifier: Apache-2.0
"""What a search survives: kill -9 at any moment, a crashing candidate, a killed worker, a full disk, two searches in one folder."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.tune.conftest import OPTIONS, QUICK, quick_tune

from litesmith import samples
from litesmith.errors import UsageError
from litesmith.optimize import Recipe
from litesmith.tune import Budget, Lock, Trial, Tuned
from litesmith.tune._jobs import Failure, work
from litesmith.tune._journal import Journal, only_one, write_whole
from litesmith.tune._question import Question, content_hash
from litesmith.tune._search import Search
from litesmith.tune._tune import ask
from litesmith.tune._workers import LocalWorkers

CANDIDATES = [word for recipe in QUICK["only"] for word in ("--only", recipe)]


@dataclass(frozen=True)
class Add:
    """A job that is done in no time."""

    number: int

    def answer(self, question: int) -> int:
        return question + self.number


@dataclass(frozen=True)
class Die:
    """A job that a native crash ends: always, or only while there is a file, which it removes."""

    only_once: str = ""

    def answer(self, question: int) -> int:
        if not self.only_once or Path(self.only_once).exists():
            Path(self.only_once or os.devnull + "x").unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        return question


@dataclass(frozen=True)
class Wait:
    """A job that says who does it, and waits."""

    path: str
    seconds: float

    def answer(self, question: int) -> int:
        Path(self.path).write_text(str(os.getpid()))
        time.sleep(self.seconds)
        return question


def test_jobs_come_back_with_their_tickets() -> None:
    workers = LocalWorkers(100, 2)
    try:
        for n in range(20):
            workers.submit(n, Add(n))
        answers = dict(workers.next() for _ in range(20))
    finally:
        workers.close()

    assert answers == {n: 100 + n for n in range(20)}


def test_a_job_that_kills_its_process_is_told_and_others_go_on(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    workers = LocalWorkers(100, 1)
    try:
        workers.submit(0, Die())
        workers.submit(1, Add(1))
        workers.submit(2, Die(str(once)))
        answers = dict(workers.next() for _ in range(3))
    finally:
        workers.close()

    assert isinstance(answers[0], Failure)
    assert answers[0].crashed
    assert "SIGSEGV" in answers[0].reason
    assert answers[1] == 101
    assert answers[2] == 100, "a job that only one process died of is done by another"


def test_a_worker_killed_from_outside_changes_nothing(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    workers = LocalWorkers(100, 1)
    try:
        workers.submit(0, Wait(str(started), 1.0))
        while not started.exists() or not started.read_text():
            time.sleep(0.02)
        os.kill(int(started.read_text()), signal.SIGKILL)
        answer = workers.next()
    finally:
        workers.close()

    assert answer == (0, 100)


def test_a_torn_line_is_cut_off_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    journal = Journal(path)
    for n in range(3):
        assert journal.append({"key": str(n)})
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "torn')
    again = Journal(path)
    again.append({"key": "next"})
    again.close()

    assert [r["key"] for r in again.records] == ["0", "1", "2", "next"]
    assert path.read_bytes() == whole + b'{"key": "next"}\n'


def test_a_damaged_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_text('{"key": "a"}\nnonsense\n{"key": "b"}\n')

    with pytest.raises(UsageError, match="line 2"):
        Journal(tmp_path / "trials.jsonl")


def test_two_searches_do_not_share_a_folder(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(UsageError, match="another search"):
        quick_tune(tmp_path)
    with only_one(tmp_path):
        pass  # it was let go


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"one")
    write_whole(tmp_path / "a", b"two")

    assert (tmp_path / "a").read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def _command(*more: object, candidates: Sequence[str] = CANDIDATES) -> list[str]:
    model, data = samples.path(), samples.path("fashion-test.npz")
    words = ["tune", model, "--data", data, *OPTIONS, *candidates, "-o", "run", "--workers", 1, *more]
    return [sys.executable, "-m", "litesmith", *map(str, words)]


def _trials(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last whole line of each trial."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[record["key"]] = record
    return found


def _has(count: int, fact: str = "key") -> Callable[[Path], bool]:
    """Return whether so many trials in a folder's journal have a fact."""
    return lambda folder: sum(bool(trial[fact]) for trial in _trials(folder / "trials.jsonl").values()) >= count


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "the first candidate": _has(1),
    "the second candidate": _has(2),
    "the third candidate": _has(3),
    "latency": _has(4),  # all are scored: the next line of the journal has a latency
    "the float model on held-out samples": _has(1, "timing"),
    "candidates on held-out samples": lambda folder: any(folder.glob("files/*-held_out-*.npz")),
    "latency with several threads": _has(1, "held_out"),
    "the layers of the winner": _has(1, "threads"),
}
"""What a search is at, and how its folder shows that."""


def test_killed_again_and_again_it_repeats_and_loses_no_finished_trial(finished: Tuned, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kept: dict[str, dict[str, Any]] = {}
    for moment, has_come in MOMENTS.items():
        process = subprocess.Popen(
            _command(), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while process.poll() is None and not has_come(folder):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = _trials(folder / "trials.jsonl")
        for key, record in kept.items():
            for fact in ("build_s", "score_s", "held_out") if record["held_out"] else ("build_s", "score_s"):
                assert after[key][fact] == record[fact], f"{fact} was found again after a kill during {moment}"
        assert set(after) >= set(kept)
        kept = after
    done = subprocess.run(_command(), cwd=tmp_path, capture_output=True, text=True, check=False)
    result = Tuned.from_json(folder / "tune.json")

    assert done.returncode == 0, done.stderr
    assert len(kept) == 4
    for trial in result.trials:
        assert (trial.build_s, trial.score_s) == (kept[trial.key]["build_s"], kept[trial.key]["score_s"])
    assert [(t.recipe, t.file, t.score) for t in result.trials] == [
        (t.recipe, t.file, t.score) for t in finished.trials
    ]
    assert (folder / "winner.tflite").read_bytes() == (Path(finished.folder) / "winner.tflite").read_bytes()
    _assert_complete(folder)


KILLED_WHILE_WRITING = """
import itertools, os, signal, sys
from litesmith.cli import main
from litesmith.tune import _tune

write, count, fatal = _tune.write_whole, itertools.count(), int(sys.argv.pop(1))

def write_or_die(path, content):
    if next(count) == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, content)

_tune.write_whole = write_or_die
main()
"""


@pytest.mark.parametrize("fatal", [0, 2, 4, 5], ids=["winner", "lock", "journal", "front"])
def test_killed_while_it_writes_it_leaves_nothing_of_another_search(
    finished: Tuned, tmp_path: Path, fatal: int
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    before = _trials(folder / "trials.jsonl")
    command = _command(candidates=("--only", "float16"))  # another winner: the smallest of all is not among them
    killed = [sys.executable, "-c", KILLED_WHILE_WRITING, str(fatal), *command[3:]]
    died = subprocess.run(killed, cwd=tmp_path, capture_output=True, text=True, check=False)
    left = {name: (folder / name).exists() for name in ("winner.tflite", "recipe.toml", "litesmith.lock")}
    written = (folder / "winner.tflite").read_bytes() if left["winner.tflite"] else b""
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    result = Tuned.from_json(folder / "tune.json")

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert list(left.values()) == [n < fatal for n in range(3)]
    assert again.returncode == 0, again.stderr
    assert result.winner is not None
    assert finished.winner is not None
    assert result.winner.file != finished.winner.file
    assert not written or content_hash(written) == result.winner.file
    for trial in result.trials:
        assert (trial.build_s, trial.score_s) == (before[trial.key]["build_s"], before[trial.key]["score_s"])
    _assert_complete(folder)


def _assert_complete(folder: Path) -> None:
    """Check that a folder has all that a search leaves, of one search."""
    result, lock = Tuned.from_json(folder / "tune.json"), Lock.from_json(folder / "litesmith.lock")
    files = {content_hash(path.read_bytes()) for path in (folder / "pareto").glob("*.tflite")}
    assert result.winner is not None
    assert content_hash((folder / "winner.tflite").read_bytes()) == lock.winner_hash == result.winner.file
    assert Recipe.from_toml(folder / "recipe.toml") == Recipe.parse(result.winner.recipe)
    assert files == {t.file for t in result.trials if t.number in result.front}
    assert set(_trials(folder / "trials.jsonl")) >= {t.key for t in result.trials}
    assert (folder / "report.html").exists()


@dataclass(frozen=True)
class Crashing(Question):
    """A question on which LiteRT crashes with every model but the float one and float16."""

    def observe(self, model: bytes, split: str, start: int, stop: int) -> dict[str, Any]:
        if len(model) < 0.5 * len(self.model):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().observe(model, split, start, stop)


def test_a_crashing_candidate_is_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    asked, _ = ask(samples.path(), samples.dataset("test"), limit=128)
    question = Crashing(**{f.name: getattr(asked, f.name) for f in fields(asked)})
    found = []
    for _ in range(2):
        workers, journal = LocalWorkers(question, 1), Journal(tmp_path / "trials.jsonl")
        try:
            search = Search(question, workers, workers, journal, tmp_path, Budget(max_drop=0.05), key="k")
            search.baseline()
            found.append(search.run("schemes", ["dynamic", "float16"]))
        finally:
            workers.close()
            journal.close()

    assert [t.status for t in found[0]] == ["failed", "done"]
    assert "SIGSEGV" in found[0][0].reason
    assert found[1] == found[0], "it is recorded, so a restart does not crash on it again"


@dataclass(frozen=True)
class Starved(Question):
    """A question whose every process is killed, as by a system without memory, while there is a file."""

    killer: str = ""

    def observe(self, model: bytes, split: str, start: int, stop: int) -> dict[str, Any]:
        if model != self.model and Path(self.killer).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().observe(model, split, start, stop)


@dataclass(frozen=True)
class Cramped(Starved):
    """A question whose workers have no space on their disk, while there is a file."""

    def observe(self, model: bytes, split: str, start: int, stop: int) -> dict[str, Any]:
        if model != self.model and Path(self.killer).exists():
            Path("/dev/full").write_bytes(b"a temporary file")
        return super().observe(model, split, start, stop)


@pytest.mark.parametrize(("kind", "reason"), [(Starved, "SIGKILL"), (Cramped, "no space left on the disk")])
def test_what_was_killed_or_had_no_space_is_tried_again_after_a_restart(
    tmp_path: Path, kind: type[Starved], reason: str
) -> None:
    asked, _ = ask(samples.path(), samples.dataset("test"), limit=128)
    killer = tmp_path / "killer"
    killer.touch()
    question = kind(**{f.name: getattr(asked, f.name) for f in fields(asked)}, killer=str(killer))
    found, floats = [], []
    for _ in range(2):
        workers, journal = LocalWorkers(question, 1), Journal(tmp_path / "trials.jsonl")
        try:
            search = Search(question, workers, workers, journal, tmp_path, Budget(max_drop=0.05), key="k")
            floats.append(search.baseline())
            found += search.run("schemes", ["float16"])
            search._keep(replace(floats[0], status="failed", reason="its latency cannot be measured"))
        finally:
            workers.close()
            journal.close()
        killer.unlink(missing_ok=True)

    assert [(t.status, t.transient) for t in found] == [("failed", True), ("done", False)]
    assert reason in found[0].reason
    assert [t.status for t in floats] == ["done", "done"], "the float model failed for a moment"


def test_trials_after_one_that_was_left_out_have_numbers_of_their_own(tmp_path: Path) -> None:
    question, _ = ask(samples.path(), samples.dataset("test"), limit=64)
    workers = LocalWorkers(question, 1)
    for deadline, stages in ((None, [["float16"], ["weights8"]]), (0.0, [["dynamic", "float16"], ["weights8"]])):
        journal = Journal(tmp_path / "trials.jsonl")
        search = Search(question, workers, workers, journal, tmp_path, Budget(), key="k", deadline=deadline)
        search.baseline()
        found = [[t.recipe for t in search.run("schemes", recipes)] for recipes in stages]
        journal.close()
    workers.close()

    assert found == [["float16"], ["weights8"]]
    assert {n: t.recipe for n, t in search.trials.items()} == {0: "", 2: "float16", 3: "weights8"}


def test_a_full_disk_is_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    """On a file system of 340 kB the float model and one candidate fit; the rest is told to have no space."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare to make a small file system with")
    (tmp_path / "run").mkdir()
    mount = "mount -t tmpfs -o size=340k none run"
    script = f"{mount} && {' '.join(map(_quoted, _command('--json')))}; code=$?; cat run/trials.jsonl >&2; exit $code"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if "Operation not permitted" in done.stderr and not done.stdout:
        pytest.skip("this system does not allow a file system of one's own")
    result = Tuned.from_json(done.stdout)
    failed = [t for t in result.trials if t.status == "failed"]

    assert "Traceback" not in done.stderr
    assert done.returncode == 0, "there is a winner"
    assert failed
    assert all("no space" in t.reason for t in failed)
    assert result.winner is not None
    lines = [Trial.from_json(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert lines, "what was finished is in the journal"


@dataclass(frozen=True)
class KeepState:
    """A job that writes the state of a training."""

    path: str

    def answer(self, question: object) -> None:
        import torch

        from litesmith.train import _checkpoint

        _checkpoint.save(Path(self.path), {"weights": torch.zeros(100_000)})


@dataclass(frozen=True)
class KeepModel:
    """A job that writes a model."""

    path: str

    def answer(self, question: object) -> None:
        samples.model().save(self.path)


@pytest.mark.parametrize(("kind", "reason"), [(KeepState, "no space left"), (KeepModel, "cannot be written")])
def test_what_found_no_space_is_tried_again_and_leaves_the_old_file(tmp_path: Path, kind: Any, reason: str) -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")
    (tmp_path / "file").write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        failure = work(None, kind(str(tmp_path / "file")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert isinstance(failure, Failure)
    assert failure.transient
    assert reason in failure.reason
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]


@pytest.mark.parametrize(("full", "left"), [("winner.tflite", 0), ("pareto", 3)])
def test_a_full_disk_at_the_end_leaves_no_winner_of_another_search(
    finished: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, left: int
) -> None:
    shutil.copytree(finished.folder, tmp_path / "run")

    def write(path: Path, content: bytes) -> None:
        if full in (path.name, path.parent.name):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, content)

    monkeypatch.setattr("litesmith.tune._tune.write_whole", write)
    result = quick_tune(tmp_path / "run", workers=1, minimize="drop")
    names = [name for name in ("winner.tflite", "recipe.toml", "litesmith.lock") if (tmp_path / "run" / name).exists()]

    assert len(names) == left
    assert any("is full, so not all files were written" in note for note in result.notes)
    assert result.winner is not None
    assert finished.winner is not None
    assert result.winner.file != finished.winner.file
    if left:
        assert content_hash((tmp_path / "run/winner.tflite").read_bytes()) == result.winner.file
        assert Lock.from_json(tmp_path / "run/litesmith.lock").winner_hash == result.winner.file


def test_a_page_that_cannot_be_written_is_a_note(finished: Tuned, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run/report.html").unlink(missing_ok=True)
    (tmp_path / "run/report.html").mkdir()
    done = subprocess.run(_command("--json"), cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert Tuned.from_json(done.stdout).winner is not None
    assert "! the page cannot be written to run: Is a directory" in done.stderr


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
