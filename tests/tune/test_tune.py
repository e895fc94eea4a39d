# SPDX-License-Identifier: Apache-2.0
"""A search from end to end: the files it leaves, the lock that makes the winner again, the gate that holds it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.conftest import trial
from tests.tune.conftest import OPTIONS, Command, quick_tune

from litesmith import Dataset, Model, compare, samples
from litesmith.errors import DataError, OptimizeError, UsageError
from litesmith.model import Buffer, Builder
from litesmith.optimize import Recipe
from litesmith.tune import Lock, Plan, Trial, Tuned, gate, plan, reproduce, tune
from litesmith.tune._jobs import Weight
from litesmith.tune._search import USUAL
from litesmith.tune._trial import Timing
from litesmith.tune._tune import _mixed


def test_the_folder_has_all_that_is_promised(finished: Tuned) -> None:
    folder = Path(finished.folder)
    winner = finished.winner

    assert winner is not None
    assert (folder / "winner.tflite").stat().st_size == winner.size_bytes
    assert Recipe.from_toml(folder / "recipe.toml") == Recipe.parse(winner.recipe)
    assert Lock.from_json(folder / "litesmith.lock").winner_hash == winner.file
    assert len(list((folder / "pareto").glob("*.tflite"))) == len(finished.front)
    assert Tuned.from_json(folder / "tune.json") == finished
    lines = (folder / "trials.jsonl").read_text().splitlines()
    assert [Trial.from_json(line) for line in lines] == list(finished.trials)


def test_the_winner_is_the_smallest_within_the_bounds_and_was_verified(finished: Tuned) -> None:
    winner = finished.winner

    assert winner is not None
    assert winner.size_bytes == min(t.size_bytes for t in finished.trials if t.drop is not None and t.drop <= 0.05)
    assert winner.held_out is not None
    assert winner.held_out.drop is not None
    assert winner.held_out.drop.drop <= 0.05
    assert winner.timing is not None
    assert finished.layers, "the winner's layers are part of the result"


def test_the_splits_share_no_sample(finished: Tuned) -> None:
    from litesmith.tune._tune import ask

    question, _ = ask(samples.path(), samples.path("fashion-test.npz"))
    parts = [
        set(d._source.content_hashes(d._indices)) for d in (question.calibrate, question.search, question.held_out)
    ]

    assert not parts[0] & parts[1]
    assert not parts[1] & parts[2]
    assert not parts[0] & parts[2]


def test_the_lock_makes_the_winner_again_byte_for_byte(finished: Tuned, tmp_path: Path) -> None:
    folder = Path(finished.folder)
    again = reproduce(folder / "litesmith.lock", tmp_path / "again.tflite")

    assert again.read_bytes() == (folder / "winner.tflite").read_bytes()


def test_the_lock_refuses_another_model_and_other_data(finished: Tuned, tmp_path: Path) -> None:
    lock = Path(finished.folder) / "litesmith.lock"
    other = tmp_path / "other.tflite"
    replace(samples.model(), description="another").save(other)

    with pytest.raises(OptimizeError, match="not the float model of the lock"):
        reproduce(lock, tmp_path / "x.tflite", model=other)
    with pytest.raises(DataError, match="not those of the lock"):
        reproduce(lock, tmp_path / "x.tflite", data=samples.path("fashion-train.npz"))
    assert not (tmp_path / "x.tflite").exists()


def test_a_second_run_repeats_nothing_and_another_budget_reuses_the_trials(finished: Tuned, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)
    again = quick_tune(folder, minimize="drop", workers=1)

    assert [(t.recipe, t.build_s, t.score_s) for t in again.trials] == [
        (t.recipe, t.build_s, t.score_s) for t in finished.trials
    ]
    assert any("not repeated" in note for note in again.notes)


def _on(folder: Path, x: Any, y: Any, *only: str, **options: Any) -> Tuned:
    """Search on arrays, one candidate or a few."""
    fixed: dict[str, Any] = {"max_drop": "5%", "minimize": "size", "seconds": 0.05, "workers": 1}
    data = Dataset.from_arrays(x, y, preprocess="scale=1/255")
    return tune(samples.path(), data, output=folder, only=only, **fixed, **options)


def _images(count: int) -> tuple[Any, Any]:
    with np.load(samples.path("fashion-test.npz")) as stored:
        return stored["x"][:count], stored["y"][:count]


def test_other_samples_held_out_or_in_another_order_are_scored_on_anew(tmp_path: Path) -> None:
    x, y = _images(300)
    held_out = Dataset.from_arrays(x).split(calibrate=0.2, search=0.4, held_out=0.4)["held_out"]._indices
    fewer, wrong = np.setdiff1d(np.arange(300), held_out[:20]), y.copy()
    wrong[held_out] = (y[held_out] + 1) % 10
    first = _on(tmp_path, x[fewer], y[fewer], "float16")
    other = _on(tmp_path, x, wrong, "float16", "dynamic")
    turned = _on(tmp_path, x[::-1], y[::-1], "float16", "weights8")

    assert first.trials[1].build_s == other.trials[1].build_s, "what does not depend on them is not repeated"
    assert all(t.held_out.value > 0.5 for t in first.trials if t.held_out)
    found = [t.held_out for t in other.trials if t.held_out]
    assert len(found) > 1
    assert all(score.value < 0.2 and score.samples == len(held_out) for score in found), "other samples and labels"
    last = turned.trials[2]
    drops = [score.drop for score in (last.score, last.held_out) if score is not None]
    assert len(drops) == 2
    assert all(drop is not None and drop.lost is not None and drop.lost <= 2 for drop in drops), "paired with others"
    lock = Lock.from_json(tmp_path / "litesmith.lock")
    assert lock.trial.held_out_hash == lock.held_out_hash


def test_one_and_two_workers_find_the_same(finished: Tuned, tmp_path: Path) -> None:
    two = quick_tune(tmp_path / "two", workers=2)

    assert _outcome(two) == _outcome(finished)
    assert (tmp_path / "two/winner.tflite").read_bytes() == (Path(finished.folder) / "winner.tflite").read_bytes()


def _outcome(result: Tuned) -> list[Any]:
    """Return all of a search but times."""
    return [
        (t.number, t.recipe, t.status, t.reason, t.file, t.score, t.held_out if t == result.winner else None)
        for t in result.trials
    ]


def test_a_hopeless_candidate_is_stopped_early(tmp_path: Path) -> None:
    images = samples.dataset("test")
    result = tune(
        samples.path(),
        images,
        calibrate=Dataset.from_arrays(np.zeros((8, 28, 28), np.float32)),  # ranges of black images fit nothing else
        output=tmp_path,
        only=("int8(minmax, recover=)", "float16"),
        max_drop="1%",
        seconds=0.1,
        workers=1,
    )
    black = result.trials[1]

    assert black.status == "stopped"
    assert "for sure after" in black.reason
    assert black.score is not None
    assert black.score.samples < result.trials[2].score.samples  # type: ignore[union-attr]
    assert result.winner is not None
    assert result.winner.number in (0, 2)


def test_where_nothing_fits_it_says_which_bound_is_to_blame(finished: Tuned, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)
    result = quick_tune(folder, max_size="50kB", workers=1)

    assert result.winner is None
    assert result.verdict.blame == "size"
    assert any("the bound on size alone keeps" in reason for reason in result.verdict.reasons)
    sizes = {t.number: t.size_bytes for t in result.trials}
    assert sizes[result.verdict.nearest[0]] == min(sizes.values())
    assert not (folder / "winner.tflite").exists()
    assert not (folder / "litesmith.lock").exists()


def test_without_labels_it_scores_by_agreement(finished: Tuned, tmp_path: Path) -> None:
    images = np.load(samples.path("fashion-test.npz"))["x"][:300]
    unlabelled = tune(
        samples.path(),
        Dataset.from_arrays(images, preprocess="scale=1/255"),
        output=tmp_path / "unlabelled",
        only=("float16",),
        seconds=0.1,
        workers=1,
    )

    assert finished.metric == "top1"
    assert unlabelled.metric == "agreement"
    assert unlabelled.baseline.score is not None
    assert unlabelled.baseline.score.value == 1.0


def test_the_best_files_are_measured_on_the_accelerators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litesmith.tune._tune.ACCELERATED", 1)
    result = quick_tune(tmp_path, only=("float16",), limit=64, accelerators=True, workers=1)
    by_name = {on.name: on for on in result.accelerators}

    assert by_name["xnnpack"].ran
    assert by_name["xnnpack"].latency_ms is not None
    assert {on.trial for on in result.accelerators} == {result.winner.number}  # type: ignore[union-attr]
    (best,) = [on for on in result.accelerators if on.best]
    accelerated = result.winner.accelerated  # type: ignore[union-attr]
    assert accelerated is None if best.name in USUAL else accelerated.accelerator == best.name
    again = quick_tune(tmp_path, only=("float16",), limit=64, workers=1)
    assert all(t.accelerated is None for t in again.trials), "nobody asked for them"


def test_gate_measures_on_the_accelerator_of_the_lock(finished: Tuned, tmp_path: Path) -> None:
    made = Path(finished.folder)
    lock = Lock.from_json(made / "litesmith.lock")
    shutil.copy(made / "winner.tflite", tmp_path / "winner.tflite")
    checks = {}
    for name in ("builtin", "openvino-npu"):
        fastest = Timing(1, 1e-6, 1e-6, 1e-6, 1.0, name)
        replace(lock, trial=replace(lock.trial, accelerated=fastest)).to_json(tmp_path / "litesmith.lock")
        bounds = ("latency>10000ms", "latency>+10%")
        checks[name] = gate(tmp_path / "litesmith.lock", fail_if=bounds, seconds=0.05).checks

    there, share = checks["builtin"]
    assert there.holds
    assert there.note.endswith("on builtin")
    assert not share.holds, "it takes longer than a nanosecond"
    absent = checks["openvino-npu"][0]
    assert (absent.found, absent.holds) == (None, False)
    assert absent.note.startswith("openvino-npu: ")


def test_the_time_limit_ends_the_search(tmp_path: Path) -> None:
    result = quick_tune(tmp_path, time_limit=1e-6, workers=1)

    assert [t.recipe for t in result.trials] == [""]
    assert {why for _, why in result.left_out} == {"no time left"}
    assert result.winner is not None
    assert result.winner.number == 0


def test_a_plan_runs_nothing(tmp_path: Path) -> None:
    planned = plan(samples.path(), samples.path("fashion-test.npz"), preprocess="scale=1/255", workers=2)

    assert planned.trials[0] <= planned.trials[1]
    assert 0 < planned.seconds[0] < planned.seconds[1]
    assert planned.memory_bytes > 0
    assert [s.name for s in planned.stages][:3] == ["baseline", "schemes", "recovery"]
    assert Plan.from_json(planned.to_json()) == planned
    assert not list(tmp_path.iterdir())


def test_a_file_that_comes_out_otherwise_is_told_with_the_versions_that_differ(finished: Tuned, tmp_path: Path) -> None:
    lock = Lock.from_json(Path(finished.folder) / "litesmith.lock")
    origin = replace(lock.origin, model=str(samples.path()), data=str(samples.path("fashion-test.npz")))
    older = replace(lock.machine, versions={**lock.machine.versions, "scipy": "0.1"})
    replace(lock, winner_hash="0", machine=older, origin=origin).to_json(tmp_path / "litesmith.lock")

    with pytest.raises(OptimizeError, match=r"not the winner of the lock.*; scipy was 0\.1 and is \d[\d.]*$"):
        reproduce(tmp_path / "litesmith.lock", tmp_path / "again.tflite")


def test_gate_holds_the_winner_to_its_lock(finished: Tuned, tmp_path: Path) -> None:
    folder = Path(finished.folder)
    own = gate(folder / "litesmith.lock", fail_if=("drop>5%", "size>+0%"))
    float_model = gate(folder / "litesmith.lock", samples.path(), fail_if=("size>+1%",))
    slow = gate(folder / "litesmith.lock", fail_if=("latency>0.000001ms",), seconds=0.1)

    assert own.passed
    assert own.is_winner
    assert not float_model.passed
    assert not float_model.is_winner
    assert not slow.passed
    assert next(c for c in own.checks if c.quantity == "drop").found == finished.winner.held_out.drop.drop  # type: ignore[union-attr]


def _lock_of_another_machine(finished: Tuned, folder: Path, **budget: Any) -> Path:
    """Return the lock of a search whose latencies were measured elsewhere, beside its winner."""
    made = Path(finished.folder)
    lock = Lock.from_json(made / "litesmith.lock")
    elsewhere = replace(lock.machine, cpu="Cortex-A72", architecture="aarch64")
    origin = replace(lock.origin, model=str(samples.path()), data=str(samples.path("fashion-test.npz")))
    changed = replace(lock, measured_on=elsewhere, budget=replace(lock.budget, **budget), origin=origin)
    changed.to_json(folder / "litesmith.lock")
    shutil.copy(made / "winner.tflite", folder / "winner.tflite")
    return folder / "litesmith.lock"


def test_gate_checks_no_latency_of_another_machine_here(finished: Tuned, tmp_path: Path) -> None:
    lock = _lock_of_another_machine(finished, tmp_path, max_latency_ms=1000.0)
    own = gate(lock, seconds=0.05).checks[-1]
    share, given = (gate(lock, fail_if=(text,), seconds=0.05) for text in ("latency>+10%", "latency>1000ms"))

    assert (own.quantity, own.found, own.holds) == ("latency", None, True)
    assert "not checked: the lock's latency is of another machine (Cortex-A72" in own.note
    assert not share.passed, "it was asked for, and cannot be checked"
    assert "latency>+10% cannot be checked" in share.checks[0].note
    assert given.passed
    assert given.checks[0].found is not None


def test_gate_reads_a_drop_as_tune_does(tmp_path: Path) -> None:
    x, y = _images(300)
    result = _on(tmp_path, x, np.eye(10, dtype=np.float32)[y], "float16", metric="mse")
    data = Dataset.from_arrays(x, np.eye(10, dtype=np.float32)[y], preprocess="scale=1/255")
    lock = tmp_path / "litesmith.lock"
    share, own_unit = gate(lock, data=data, fail_if=("drop>5%", "drop>0.25")).checks

    assert result.budget.drop_is_relative
    assert share.allowed == pytest.approx(result.drop_bound)
    assert own_unit.allowed == 0.25


def test_compare_takes_a_lock_for_its_winner(finished: Tuned) -> None:
    lock = Path(finished.folder) / "litesmith.lock"
    result = compare(lock, samples.path(), seconds=0.1, fail_if=("size>+1%",))

    assert result.broken == ("size>+1%",)
    assert compare(lock, Path(finished.folder) / "winner.tflite", seconds=0.1, fail_if="size>+1%").broken == ()


def _without_weights(model: Model) -> Model:
    """Return a model that answers the same to everything: the weights of its last layer are zero."""
    graph = model.main
    head = graph.operators[[op.kind for op in graph.operators].index("FULLY_CONNECTED")]
    weights = graph.tensors[head.inputs[1]]
    zeros = replace(weights, buffer=Buffer(bytes(len(weights.buffer or b""))))
    tensors = [zeros if tensor is weights else tensor for tensor in graph.tensors]
    return replace(model, subgraphs=(replace(graph, tensors=tuple(tensors)),))


def test_gate_and_compare_fail_on_drop(finished: Tuned, litesmith: Command, tmp_path: Path) -> None:
    lock = Path(finished.folder) / "litesmith.lock"
    _without_weights(Model.load(samples.path())).save(tmp_path / "bad.tflite")
    own = gate(lock, tmp_path / "bad.tflite", latency=False)
    given = litesmith("gate", lock, "bad.tflite", "--fail-if", "drop>0.5%")
    compared = litesmith("compare", lock, "bad.tflite", "--fail-if", "drop>0.5%", "--seconds", 0.1)

    drop = next(check for check in own.checks if check.quantity == "drop")
    assert (own.passed, drop.holds) == (False, False)
    assert drop.found is not None
    assert drop.found > 0.5
    for failed in (given, compared):
        text = " ".join(failed.stdout.split())
        assert failed.returncode == 1, failed.stderr
        assert f"drop {100 * drop.found:.2f} points, allowed 0.50 points (interval" in text
    assert "✗ fails: drop>0.5%" in compared.stdout


def test_compare_holds_a_file_to_a_lock_as_gate_does(finished: Tuned, tmp_path: Path) -> None:
    lock, winner = (Path(finished.folder) / name for name in ("litesmith.lock", "winner.tflite"))
    bounds = ("drop>5%", "latency>0.000001ms", "size>4MB", "size>1kB", "size>+1%", "latency>+100000%")
    result = compare(lock, winner, seconds=0.1, fail_if=bounds)
    turned = compare(samples.path(), lock, seconds=0.1, fail_if="size>1kB")

    assert result.broken == ("latency>0.000001ms", "size>1kB")
    assert [text.split()[0] for text in result.checked] == ["drop", "latency", "size", "size"]
    assert turned.broken == ("size>1kB",)
    assert turned.checked == (f"size {winner.stat().st_size:,} bytes, allowed 1,000 bytes",)
    with pytest.raises(UsageError, match="is not a bound"):
        compare(lock, winner, fail_if="speed>3%")


def test_compare_measures_with_the_threads_of_the_lock(finished: Tuned, tmp_path: Path) -> None:
    made = Path(finished.folder)
    lock = Lock.from_json(made / "litesmith.lock")
    assert lock.trial.timing is not None
    slow, fast = (replace(lock.trial.timing, threads=n, median_ms=ms) for n, ms in ((1, 9.0), (2, 1.0)))
    replace(lock, trial=replace(lock.trial, timing=slow, threads=(fast,))).to_json(tmp_path / "litesmith.lock")
    shutil.copy(made / "winner.tflite", tmp_path / "winner.tflite")
    compared = compare(tmp_path / "litesmith.lock", samples.path(), seconds=0.1)

    assert "2 threads" in compared.after


def test_gate_refuses_bounds_that_make_no_sense(finished: Tuned) -> None:
    for bad in ("drop<1%", "speed>3%", "size>5ms", "latency>4MB"):
        with pytest.raises(UsageError, match="is not a bound"):
            gate(Path(finished.folder) / "litesmith.lock", fail_if=(bad,))


def test_a_lock_finds_the_function_of_a_file_and_asks_for_samples_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/data.py").write_text(
        "from litesmith import samples\n\n\ndef images():\n    return list(samples.dataset('test').take(200))\n"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    black = Dataset.from_arrays(np.zeros((8, 28, 28), np.float32))
    fixed: dict[str, Any] = {"only": ("float16",), "minimize": "size", "seconds": 0.05, "workers": 1}
    tune(samples.path(), "tools/data.py:images", calibrate=black, output="tools", **fixed)
    monkeypatch.chdir(tmp_path / "elsewhere")
    lock = tmp_path / "tools/litesmith.lock"

    assert Lock.from_json(lock).origin.data == "data.py:images"
    assert gate(lock, calibrate=black, latency=False).passed
    assert reproduce(lock, "again.tflite", calibrate=black).read_bytes() == lock.with_name("winner.tflite").read_bytes()
    with pytest.raises(UsageError, match="the calibration samples are: they came from a program; give calibrate="):
        gate(lock, latency=False)


def test_gate_takes_the_kernels_of_custom_operators(litesmith: Command, tmp_path: Path) -> None:
    b = Builder()
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 4, kernel=3)
    x = b.op("CUSTOM", x, np.ones(4, np.float32), custom_code="Scale", outputs=[((1, 8, 8, 4), "float32")])
    b.build({"y": b.conv2d(x, 2, kernel=3)}).save(tmp_path / "m.tflite")
    kernel = "import litesmith, numpy\nlitesmith.custom_op('Scale', numpy.multiply)\n"
    (tmp_path / "kernels.py").write_text(kernel)
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).standard_normal((40, 8, 8, 3)).astype(np.float32))
    own = ("--custom-op", "kernels.py")
    made = litesmith(
        "tune", "m.tflite", "--data", "d.npz", "--only", "float16", "--minimize", "size", "--seconds", 0.05, "-o", "run",
        *own,
    )  # fmt: skip
    held = litesmith("gate", "run/litesmith.lock", "--no-latency", *own)

    assert made.returncode == 0, made.stderr
    assert held.returncode == 0, held.stderr


def test_mistakes_are_told(tmp_path: Path) -> None:
    for options, words in (
        ({"max_drop": "1 apple"}, "not a share"),
        ({"max_latency": "5 parsecs"}, "not a time"),
        ({"minimize": "cost"}, "choose one of"),
        ({"only": ("int9",)}, "there is no step"),
        ({"workers": 0}, "must be 1 or more"),
    ):
        with pytest.raises(UsageError, match=words):
            quick_tune(tmp_path / "x", **options)


def test_the_command_line(litesmith: Command, tmp_path: Path) -> None:
    model, data = samples.path(), samples.path("fashion-test.npz")
    planned = litesmith("tune", model, "--data", data, *OPTIONS, "--plan")
    done = litesmith("tune", model, "--data", data, *OPTIONS, "--only", "float16", "-o", "run", "--workers", 1)
    again = litesmith("tune", "--from", "run/litesmith.lock", "-o", "again.tflite")
    passed = litesmith("gate", "run/litesmith.lock", "--no-latency")
    broken = litesmith("gate", "run/litesmith.lock", model, "--no-latency", "--fail-if", "size>+1%")
    wrong = litesmith("tune", model)

    assert planned.returncode == 0, planned.stderr
    assert "trials" in planned.stdout
    assert done.returncode == 0, done.stderr
    assert "★" in done.stdout
    assert (tmp_path / "run/report.html").stat().st_size < 6_000_000
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again.tflite").read_bytes() == (tmp_path / "run/winner.tflite").read_bytes()
    assert passed.returncode == 0, passed.stdout
    assert broken.returncode == 1
    assert "✗ size" in broken.stdout
    assert wrong.returncode == 2
    for run in (planned, done, again, passed, broken, wrong):
        assert "Traceback" not in run.stderr


def test_a_lock_makes_its_winner_and_nothing_else(litesmith: Command, finished: Tuned, tmp_path: Path) -> None:
    lock, winner = (Path(finished.folder) / name for name in ("litesmith.lock", "winner.tflite"))
    wrong = litesmith("tune", "--from", lock, "--max-drop", "1%", "--plan", "-o", "a.tflite")
    (tmp_path / "litesmith-tune").mkdir()
    made = litesmith("tune", "--from", lock, "-o", "litesmith-tune", "--json")

    assert wrong.returncode == 2
    assert "--max-drop, --plan cannot be given with --from" in wrong.stderr
    assert not (tmp_path / "a.tflite").exists()
    assert json.loads(made.stdout) == {"path": "litesmith-tune/winner.tflite", "lock": str(lock)}, made.stderr
    assert (tmp_path / "litesmith-tune/winner.tflite").read_bytes() == winner.read_bytes()


class Promoting:
    """A search without time for the two smallest promotions: of the others, ten operators in float are enough."""

    drop_bound = 0.01

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []

    def weights(self, base: Trial) -> list[Weight]:
        return [Weight(n, "CONV_2D", 1 / (n + 1), 100) for n in range(40)]

    def run(self, stage: str, recipes: list[str]) -> list[Trial]:
        counts = [recipe.count("float:") for recipe in recipes]
        self.rounds.append(counts)
        drops = {
            recipe: 0.0 if count >= 10 else 0.1 for recipe, count in zip(recipes, counts, strict=True) if count > 2
        }
        return [trial(n, recipe, 0.92 - drop, 1.0, 500) for n, (recipe, drop) in enumerate(drops.items(), 1)]


def test_promotions_without_time_do_not_lend_their_number_to_others() -> None:
    search = Promoting()
    _mixed(search, trial(1, "int8", 0.9, 1.0, 500))  # type: ignore[arg-type]

    assert search.rounds[:2] == [[1, 2, 5, 10, 20], [7]]


def test_mixed_precision_promotes_weak_layers(tmp_path: Path) -> None:
    """Without recovery the sample loses in int8; promoting its weakest layers brings it back."""
    from litesmith.tune import _candidates as candidates
    from litesmith.tune._budget import Budget
    from litesmith.tune._journal import Journal
    from litesmith.tune._search import Search
    from litesmith.tune._tune import ask
    from litesmith.tune._workers import LocalWorkers

    question, _ = ask(samples.path(), samples.dataset("test"), calibrate=samples.dataset("train"), limit=1000)
    workers = LocalWorkers(question, 1)
    journal = Journal(tmp_path / "trials.jsonl")
    try:
        search = Search(question, workers, workers, journal, tmp_path, Budget(max_drop=0.004, minimize="size"), key="k")
        search.baseline()
        (base,) = search.run("schemes", ["int8(minmax, recover=, samples=50)"])
        order = candidates.ranked(search.weights(base))
        _mixed(search, base)
    finally:
        workers.close()
        journal.close()
    mixed = [t for t in search.trials.values() if t.stage == "mixed"]

    assert base.drop is not None
    assert base.drop > 0.004
    assert len(order) > 5
    assert mixed
    best = min(mixed, key=lambda t: t.drop if t.drop is not None else 1)
    assert best.drop is not None
    assert best.drop < base.drop
    assert json.loads(best.to_json())["recipe"].count("float:#") >= 1
    assert Model.load(tmp_path / "files" / f"{best.file}.tflite").main.operators
