# SPDX-License-Identifier: Apache-2.0
"""Training does what it says: it recovers accuracy, keeps zeros and clusters, resumes, and repeats itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.conftest import pattern_images, small_net

import litesmith
from litesmith.data import Dataset
from litesmith.errors import DataError, MissingExtraError, OptimizeError, UsageError
from litesmith.model import Builder, Model
from litesmith.train import TrainEvent, TrainResult, train

Accuracy = Callable[[Model], float]
FAST: dict[str, Any] = {"epochs": 3, "batch": 32, "learning_rate": 1e-3}


def weights(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights of the layers, by name."""
    found = {}
    for op in model.main.operators:
        if op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            tensor = model.main.tensors[op.inputs[1]]
            found[tensor.name] = tensor.array()
    return found


def test_labels_alone_teach_a_random_net(learned: Model, accuracy: Accuracy) -> None:
    assert accuracy(small_net()) < 0.5
    assert accuracy(learned) > 0.9


def test_int8_in_training_keeps_the_accuracy(
    learned: Model, data: Dataset, held_out: Dataset, accuracy: Accuracy
) -> None:
    trained = train(learned, data, qat="int8", validation=held_out, **FAST)

    assert any(t.dtype == "int8" for t in trained.model.main.tensors)
    assert accuracy(trained.model) >= accuracy(learned) - 0.01
    assert abs(trained.result.simulated - trained.result.written) <= 0.002
    assert trained.coverage is not None
    assert len(trained.coverage.quantized) > 5
    assert trained.model.signatures == learned.signatures or trained.model.signatures[0].key == "serving_default"


@pytest.mark.parametrize("qat", ["int16x8", "mixed"])
def test_other_integers_can_be_trained(qat: str, learned: Model, data: Dataset, held_out: Dataset) -> None:
    trained = train(learned, data, qat=qat, validation=held_out, **{**FAST, "epochs": 1})

    assert any(t.dtype == "int16" for t in trained.model.main.tensors)
    assert abs(trained.result.simulated - trained.result.written) <= 0.002
    assert trained.result.written >= trained.result.original - 0.01
    assert (qat == "mixed") == any("int16x8" in note for note in trained.result.notes)


def test_without_labels_the_float_model_teaches(learned: Model, data: Dataset, held_out: Dataset) -> None:
    unlabelled = Dataset.from_arrays(pattern_images(300, seed=3)[0])
    trained = train(learned, unlabelled, qat="int8", **FAST)

    assert trained.result.metric == "agreement"
    assert trained.result.original == 1.0
    assert trained.result.written > 0.9


@pytest.mark.parametrize("pruning", ["second-order", "gradual"])
def test_zeros_stay_zeros_and_int8_keeps_them(pruning: str, learned: Model, data: Dataset, accuracy: Accuracy) -> None:
    trained = train(learned, data, prune="0.5@4x1", pruning=pruning, qat="int8", **{**FAST, "epochs": 6})
    sparse = {name: (values == 0).mean() for name, values in weights(trained.model).items()}

    assert accuracy(trained.model) > 0.85
    assert trained.result.curve[-1].sparsity >= 0.5
    last = next(v for n, v in weights(trained.model).items() if n.startswith("last"))
    blocks = (last.reshape(4, 4, -1) != 0).any(axis=1)
    assert (last.reshape(4, 4, -1) != 0).sum() <= 4 * blocks.sum() < 0.75 * last.size
    assert sparse["last/weight"] > 0.3
    assert "prune(0.5, 4x1) → int8" in trained.result.recipe


def test_a_sparse_file_holds_fewer_bytes(learned: Model, data: Dataset) -> None:
    options = {"prune": "0.9", "epochs": 1, "batch": 64}
    dense, sparse = (
        len(train(learned, data, store=store, **options).model.to_bytes()) for store in ("dense", "sparse")
    )

    assert sparse < dense


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"qat": "int8"},
        {"qat": "int8", "prune": "0.5"},
        {"qat": "int8", "prune": "0.5", "pruning": "gradual"},
    ],
    ids=["float", "int8", "both", "gradual"],
)
def test_clusters_stay_clusters(extra: dict[str, str], learned: Model, data: Dataset, accuracy: Accuracy) -> None:
    trained = train(learned, data, cluster=8, **extra, **{**FAST, "epochs": 4})
    first_and_last = ("stem/weight", "head/weight")
    big = {n: v for n, v in weights(trained.model).items() if n not in first_and_last and v.size > 32}

    assert big
    assert all(len(np.unique(values)) <= 8 for values in big.values())
    assert accuracy(trained.model) > 0.85
    if "prune" in extra:
        pruned = [v for v in big.values() if (v == 0).any()]
        assert len(pruned) >= 2
        assert sum((v == 0).sum() for v in pruned) >= 0.45 * sum(v.size for v in pruned)


def test_fewer_channels_recover(learned: Model, data: Dataset, accuracy: Accuracy) -> None:
    trained = train(learned, data, channels=0.6, **{**FAST, "epochs": 8, "learning_rate": 5e-3})

    assert trained.model.cost().macs <= 0.6 * learned.cost().macs
    assert trained.result.written >= trained.result.start - 0.03
    assert accuracy(trained.model) > 0.8


def test_equal_seeds_give_equal_files(learned: Model, data: Dataset) -> None:
    options = {"qat": "int8", "augment": "flip shift=1 noise=0.1", **FAST, "epochs": 1}
    first, second, other = (train(learned, data, seed=seed, **options).model for seed in (0, 0, 1))

    assert first.to_bytes() == second.to_bytes()
    assert first.to_bytes() != other.to_bytes()


SCRIPT = """
import sys
import time
import torch
torch.set_num_threads(1)
sys.path.insert(0, {root!r})
from litesmith.data import Dataset
from litesmith.model import Model
from litesmith.train import train
from tests.train.conftest import pattern_images
def tell(event):
    print(event.epoch, flush=True)
    time.sleep(1.0)  # the state is written behind this: there is time to kill it with an epoch to go
train(Model.load({model!r}), Dataset.from_arrays(*pattern_images(400)), checkpoint={state!r}, callback=tell, {options})
"""


@pytest.mark.parametrize("finished", [2, 5], ids=["recovering", "rounding"])
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    finished: int, learned: Model, data: Dataset, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "qat": "int8", "prune": "0.5", "pruning": "gradual", "augment": "flip", "epochs": 6, "batch": 32,
    }  # fmt: skip
    model, state = tmp_path / "model.tflite", tmp_path / "state"
    learned.save(model)
    root = str(Path(litesmith.__file__).parents[2])
    script = SCRIPT.format(
        root=root, model=str(model), state=str(state), options=", ".join(f"{k}={v!r}" for k, v in options.items())
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        for _ in range(finished):
            assert run.stdout.readline(), run.stderr.read()
        time.sleep(1.3)
        run.send_signal(signal.SIGKILL)
    seen: list[int] = []
    assert state.exists()
    resumed = train(Model.load(model), data, checkpoint=state, callback=lambda e: seen.append(e.epoch), **options)
    straight = train(Model.load(model), data, **options)

    assert seen[0] >= finished, "it began anew"
    assert resumed.model.to_bytes() == straight.model.to_bytes()
    assert [e.score for e in resumed.result.curve] == [e.score for e in straight.result.curve]
    with pytest.raises(UsageError, match="belongs to another training"):
        train(learned, data, checkpoint=state, **{**options, "seed": 5})


class KilledError(Exception):
    """What stands for a kill at a place that a signal does not hit by itself."""


TWO_STAGES: dict[str, Any] = {"qat": "int8", "prune": "0.5", "epochs": 4, "batch": 32}


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("finished", [0, 2, 3], ids=["first epoch", "last of a stage", "last of all"])
def test_a_run_that_is_killed_while_it_scores_an_epoch_ends_with_the_same_file(
    finished: int, average: float, learned: Model, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litesmith.train._loop import Loop

    state, finish = tmp_path / "state", Loop._finish_epoch

    def kill(loop: Loop, epoch: int) -> None:
        if loop.earlier.epochs + epoch == finished:
            loop._save()  # as it is where the time for it comes with the last step
            raise KilledError
        finish(loop, epoch)

    few, options = data.take(160), {**TWO_STAGES, "average": average}
    monkeypatch.setattr(Loop, "_finish_epoch", kill)
    with pytest.raises(KilledError):
        train(learned, few, checkpoint=state, **options)
    monkeypatch.undo()
    resumed, straight = train(learned, few, checkpoint=state, **options), train(learned, few, **options)

    assert [(e.epoch, e.score) for e in resumed.result.curve] == [(e.epoch, e.score) for e in straight.result.curve]
    assert [e.loss for e in resumed.result.curve] == pytest.approx([e.loss for e in straight.result.curve])
    assert resumed.model.to_bytes() == straight.model.to_bytes()


def test_a_run_that_a_callback_stopped_stays_stopped(
    learned: Model, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litesmith.train._training import Training

    state = tmp_path / "state"

    def kill(_training: Training) -> None:
        raise KilledError

    monkeypatch.setattr(Training, "_written", kill)
    with pytest.raises(KilledError):
        train(learned, data, checkpoint=state, callback=lambda event: event.epoch < 2, **FAST)
    monkeypatch.undo()
    resumed = train(learned, data, checkpoint=state, **FAST).result

    assert resumed.stopped == "callback"
    assert len(resumed.curve) == 2


def test_progress_tells_the_loss_at_once_and_the_time_of_all_stages(
    learned: Model, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litesmith.train import _loop

    told: list[str] = []
    minutes_left = _loop.Loop._minutes_left

    @contextmanager
    def tell(title: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
        told.append(title)
        yield lambda _steps: None

    def as_if_an_epoch_took_a_minute(loop: _loop.Loop) -> float:
        loop.seconds = 60 * loop.step / loop.steps_per_epoch
        return minutes_left(loop)

    monkeypatch.setattr(_loop, "task", tell)
    monkeypatch.setattr(_loop.Loop, "_minutes_left", as_if_an_epoch_took_a_minute)
    train(learned, data.take(160), **TWO_STAGES)

    assert re.search(r" 1/4$", told[0])
    assert re.search(r" 1/4 · loss [\d.e-]+ · 3\.\d min left$", told[1])
    assert any(re.search(r" 2/4 · loss [\d.e-]+ · top1 [\d.]+ · 3\.0 min left$", text) for text in told)
    assert any(re.search(r" 4/4 · loss [\d.e-]+ · 0\.\d min left$", text) for text in told)


def test_a_damaged_checkpoint_is_refused(learned: Model, data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"half of it")

    with pytest.raises(UsageError, match="cannot be read"):
        train(learned, data, checkpoint=tmp_path / "state", **FAST)


def test_a_callback_sees_each_epoch_and_may_stop(learned: Model, data: Dataset) -> None:
    events: list[TrainEvent] = []

    def look(event: TrainEvent) -> bool:
        events.append(event)
        return event.epoch < 2

    result = train(learned, data, qat="int8", callback=look, **{**FAST, "epochs": 9}).result

    assert [event.epoch for event in events] == [1, 2]
    assert result.stopped == "callback"
    assert events[0].module.weights


def test_what_is_lost_is_recovered_before_values_are_rounded(learned: Model, data: Dataset) -> None:
    events: list[tuple[int, int, bool, bool]] = []

    def look(event: TrainEvent) -> bool:
        recovers, rounds = len(event.module.norms) > 0, len(event.module.write_transforms) > 0
        events.append((event.epoch, event.epochs, recovers, rounds))
        return len(events) < 6

    options = {**FAST, "epochs": 4, "qat": "int8", "prune": "0.5"}
    result = train(learned, data, callback=look, **options).result

    assert events == [(1, 4, True, False), (2, 4, True, False), (3, 4, True, False), (4, 4, False, True)]
    assert [point.epoch for point in result.curve] == [1, 2, 3, 4]
    assert result.curve[-1].seconds == pytest.approx(result.seconds, abs=1.0)
    assert result.curve[-1].learning_rate < result.curve[0].learning_rate
    assert abs(result.simulated - result.written) <= 0.01

    events.clear()
    halted = train(learned, data, callback=lambda event: look(event) and False, **options)
    assert len(events) == 1
    assert halted.result.stopped == "callback"
    assert any(t.dtype == "int8" for t in halted.model.main.tensors)


def test_normalization_begins_as_what_the_net_computes(learned: Model, data: Dataset) -> None:
    import torch

    from litesmith.train._feed import Samples
    from litesmith.train._normalization import normalize

    module, samples = litesmith.train.to_torch(learned), Samples(data, learned)
    images = torch.from_numpy(pattern_images(32, seed=7)[0])
    before = module(images).detach()

    assert normalize(module, samples) == 5
    torch.testing.assert_close(module.eval()(images).detach(), before, rtol=1e-3, atol=1e-3)
    folded = litesmith.train.to_torch(module.to_model())
    torch.testing.assert_close(folded(images).detach(), before, rtol=1e-3, atol=1e-3)


def test_the_start_is_kept_where_training_makes_nothing_better(learned: Model, data: Dataset) -> None:
    spoilt = train(learned, data, distill=True, clip=0, **{**FAST, "epochs": 1, "learning_rate": 1.0})

    assert spoilt.result.curve[0].score < spoilt.result.start
    assert spoilt.result.best_epoch == 0
    assert spoilt.result.written == pytest.approx(spoilt.result.original, abs=0.03)


def test_the_average_follows_the_weights_by_a_share_of_the_way() -> None:
    import torch

    from litesmith.train._average import Average

    module = torch.nn.BatchNorm1d(1)  # a weight, statistics, and a counter that cannot be averaged
    average = Average(module, 0.5)
    with average.in_place():
        assert module.weight.item() == 1.0  # nothing is averaged yet
    for weight in (1.0, 3.0, 5.0):
        module.weight.data.fill_(weight)
        module.running_mean.fill_(10 * weight)
        module.num_batches_tracked.add_(1)
        average.add()

    share = [1 - min(0.5, steps / (steps + 9)) for steps in (1, 2, 3)]
    expected = 1.0 + share[1] * (3.0 - 1.0)
    expected += share[2] * (5.0 - expected)
    with average.in_place():
        assert module.weight.item() == pytest.approx(expected)
        assert module.running_mean.item() == pytest.approx(10 * expected)
        assert module.num_batches_tracked.item() == 3
    assert module.weight.item() == 5.0


def test_the_average_is_what_is_scored_and_written(learned: Model, data: Dataset, held_out: Dataset) -> None:
    options = {**FAST, "epochs": 2, "schedule": "constant", "qat": "int8", "validation": held_out}
    last, mean = (train(learned, data, average=average, **options) for average in (0.0, 0.95))

    assert mean.result.simulated == pytest.approx(mean.result.written, abs=0.005)
    assert weights(mean.model).keys() == weights(last.model).keys()
    assert any(not np.array_equal(w, weights(last.model)[name]) for name, w in weights(mean.model).items())


def test_the_average_keeps_zeros_and_clusters(learned: Model, data: Dataset) -> None:
    trained = train(learned, data, prune="0.5", pruning="gradual", cluster=8, average=0.9, **{**FAST, "epochs": 4})
    pruned = [w for w in weights(trained.model).values() if (w == 0).mean() > 0.1]

    assert sum((w == 0).sum() for w in pruned) / sum(w.size for w in pruned) == pytest.approx(0.5, abs=0.03)
    assert all(len(np.unique(w)) <= 8 for w in pruned)


def test_a_recovery_in_bfloat16_is_written_as_it_was_scored(
    learned: Model, data: Dataset, held_out: Dataset, accuracy: Accuracy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litesmith.train._module import GraphModule

    seen: list[tuple[Any, bool]] = []
    run = GraphModule.run

    def watched(module: GraphModule, *arguments: Any) -> Any:
        values = run(module, *arguments)
        seen.append((values[module.graph.outputs[0]].dtype, module.training))
        return values

    monkeypatch.setattr(GraphModule, "run", watched)
    options: dict[str, Any] = {**FAST, "epochs": 8, "precision": "bfloat16", "validation": held_out}
    trained = train(learned, data, channels=0.6, qat="int8", **options)

    kinds = {str(kind) for kind, is_training in seen if is_training}
    assert kinds == {"torch.bfloat16", "torch.float32"}  # the recovery, and the rounding behind it
    assert {str(kind) for kind, is_training in seen if not is_training} == {"torch.float32"}
    assert abs(trained.result.simulated - trained.result.written) <= 0.005
    assert accuracy(trained.model) >= accuracy(learned) - 0.05


def test_patience_and_time_end_a_training(learned: Model, data: Dataset) -> None:
    idle = train(learned, data, patience=2, **{**FAST, "epochs": 50, "learning_rate": 1e-9})
    timed = train(learned, data, minutes=0.02, batch=32)

    assert idle.result.stopped == "patience"
    assert len(idle.result.curve) == 3
    assert timed.result.stopped == "time"
    assert timed.result.seconds < 20


def test_a_model_that_ends_with_a_softmax_is_taught_by_its_scores(data: Dataset) -> None:
    trained = train(small_net(softmax=True), data, label_weight=1.0, epochs=4, learning_rate=1e-2, batch=32)

    assert trained.result.curve[-1].loss < 1.2
    assert trained.model.main.operators[-1].kind == "SOFTMAX"


def test_a_regression_is_taught_by_its_values() -> None:
    b = Builder("autoencoder", seed=1)
    x = b.fully_connected(b.input("x", (1, 16)), 8, activation="RELU")
    model = b.build(
        {"y": b.op("RESHAPE", b.fully_connected(x, 16), np.array([1, 4, 4], np.int32), new_shape=[1, 4, 4])}
    )
    rows = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    trained = train(model, Dataset.from_arrays(rows), qat="int8", head="same", epochs=3)

    assert trained.result.metric == "closeness"
    assert trained.result.written == pytest.approx(trained.result.simulated, abs=1e-3)
    assert trained.result.written > -0.01


def test_results_become_json_and_plots(learned: Model, data: Dataset) -> None:
    result = train(learned, data, **{**FAST, "epochs": 1}).result

    assert TrainResult.from_json(result.to_json()) == result
    assert len(result.plot().data) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qat": "int7"}, "choose one of int8, int16x8, mixed"),
        ({"prune": "1.5"}, "is no sparsity"),
        ({"prune": "0.5@8x8"}, "there is no pattern"),
        ({"pruning": "random"}, "choose one of second-order, gradual"),
        ({"channels": 2.0}, "share of the work to keep"),
        ({"cluster": 1}, "give 3 to 256"),
        ({"cluster": 8, "prune": "0.5", "pruning": "gradual", "epochs": 1}, "take two epochs or more"),
        ({"optimizer": "adam"}, "choose one of adamw, sgd"),
        ({"schedule": "steps"}, "choose one of cosine"),
        ({"epochs": 0}, "at least 1 epoch"),
        ({"augment": "rotate"}, "none of flip, shift=PIXELS"),
        ({"augment": "mix=0.7"}, "at most 0.5, not 0.7"),
        ({"label_weight": 2.0}, "share from 0 to 1"),
        ({"task": "boxes"}, "choose one of auto, classes, values"),
        ({"patience": 0}, "at least 1, not 0"),
        ({"average": 1.0}, "at least 0 and below 1"),
        ({"precision": "float16"}, "choose one of float32, bfloat16"),
        ({"rules": ["float:ADD"]}, "give qat as well"),
        ({"minutes": 0.0}, "leaves nothing to train in"),
        ({"store": "zip"}, "cannot be stored"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, Any], message: str, learned: Model, data: Dataset
) -> None:
    with pytest.raises(UsageError, match=message):
        train(learned, data, **options)


def test_data_that_cannot_be_trained_on_is_refused(learned: Model, data: Dataset) -> None:
    images, labels = pattern_images(40)
    with pytest.raises(DataError, match="too few to train on"):
        train(learned, Dataset.from_arrays(images[:5], labels[:5]))
    with pytest.raises(DataError, match="the model has 4 classes"):
        train(learned, Dataset.from_arrays(images, labels + 1))


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, learned: Model, data: Dataset) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name, *rest)
    )
    with pytest.raises(MissingExtraError, match=r"litesmith\[train\]"):
        train(learned, data)
    with pytest.raises(MissingExtraError, match=r"litesmith\[train\]"):
        _ = litesmith.train.to_torch


def test_the_folder_is_also_the_verb(learned: Model, data: Dataset) -> None:
    code = "import sys, litesmith.train; assert 'torch' not in sys.modules; assert callable(litesmith.train)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert litesmith.train(learned, data, epochs=1).result.recipe == "float"


def test_a_larger_model_can_teach(learned: Model) -> None:
    unlabelled = Dataset.from_arrays(pattern_images(300, seed=3)[0])
    random = small_net()
    taught = train(random, unlabelled, teacher=learned, epochs=12, learning_rate=1e-2, batch=32)

    assert taught.result.original < 0.5
    assert taught.result.written > 0.8


def test_a_teacher_must_fit(learned: Model, data: Dataset) -> None:
    b = Builder("other")
    other = b.build({"y": b.fully_connected(b.input("x", (1, 16)), 4)})

    with pytest.raises(UsageError, match="the teacher has inputs of the shapes 1×16, the model"):
        train(learned, data, teacher=other, qat="int8", **FAST)


def _two_heads() -> Model:
    b = Builder("heads", seed=1)
    x = b.fully_connected(b.input("x", (1, 16)), 8, activation="RELU")
    return b.build({"scores": b.fully_connected(x, 4), "place": b.fully_connected(x, 2)})


def test_a_model_with_several_outputs_is_scored_by_its_first() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 16)).astype(np.float32)
    trained = train(_two_heads(), Dataset.from_arrays(rows), qat="int8", epochs=2)

    assert trained.result.metric == "agreement"
    assert trained.result.original == 1.0
    assert trained.result.written > 0.8
    assert any("class scores" in note and "--task values" in note for note in trained.result.notes)


def test_a_list_of_numbers_may_be_values() -> None:
    b = Builder("regression", seed=1)
    model = b.build({"y": b.fully_connected(b.fully_connected(b.input("x", (1, 16)), 8, activation="RELU"), 3)})
    rows = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    with litesmith.Session(model) as session:
        shifted = np.stack([session.run({"x": row[None]})["y"][0] + np.float32(3) for row in rows])
    labelled = Dataset.from_arrays(rows, shifted)
    trained = train(model, labelled, label_weight=1.0, epochs=30, learning_rate=1e-2)
    unlabelled = train(model, Dataset.from_arrays(rows), task="values", qat="int8", epochs=1)

    assert trained.result.metric == unlabelled.result.metric == "closeness"
    assert trained.result.original == pytest.approx(-9.0, abs=0.1)  # the labels are 3 off
    assert trained.result.written > -2.0
    assert trained.result.written == pytest.approx(trained.result.simulated, abs=1e-3)
    assert not unlabelled.result.notes
    with pytest.raises(UsageError, match="numbers with fractions"):
        train(model, labelled, task="classes", epochs=1)


def test_zeros_of_a_transposed_convolution_stay_zeros(learned: Model) -> None:
    b = Builder("up", seed=1)
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 8, kernel=3, activation="RELU")
    x = b.conv2d(x, 8, kernel=3, activation="RELU")
    shape = np.array([1, 16, 16, 8], np.int32)
    kernel = np.random.default_rng(0).normal(size=(8, 2, 2, 8)).astype(np.float32)
    x = b.op("TRANSPOSE_CONV", shape, kernel, x, padding="SAME", stride_w=2, stride_h=2)
    model = b.build({"y": b.conv2d(x, 3)})
    images = np.random.default_rng(1).normal(size=(64, 8, 8, 3)).astype(np.float32)
    trained = train(model, Dataset.from_arrays(images), prune="0.5", epochs=2)
    op = next(op for op in trained.model.main.operators if op.kind == "TRANSPOSE_CONV")

    assert (trained.model.main.tensors[op.inputs[1]].array() == 0).mean() > 0.2


def test_float16_rules_write_what_was_trained(learned: Model, data: Dataset) -> None:
    layers = [i for i, op in enumerate(learned.main.operators) if op.kind == "CONV_2D"]
    rule = f"float16:#{layers[1]}"
    trained = train(learned, data, qat="int8", rules=[rule], label_weight=1.0, **{**FAST, "epochs": 1})
    source = learned.main.tensors[learned.main.operators[layers[1]].inputs[1]]
    written = next(t for t in trained.model.main.tensors if t.dtype == "float16" and t.shape == source.shape)

    assert not np.array_equal(written.array(), source.array().astype(np.float16))
    assert abs(trained.result.simulated - trained.result.written) <= 0.002


def test_scales_for_blocks_cannot_be_trained(data: Dataset) -> None:
    b = Builder("wide", seed=1)
    model = b.build({"y": b.fully_connected(b.fully_connected(b.input("x", (1, 64)), 64, activation="RELU"), 4)})
    rows = np.random.default_rng(0).normal(size=(60, 64)).astype(np.float32)

    with pytest.raises(OptimizeError, match="a scale for each block, which cannot be trained"):
        train(model, Dataset.from_arrays(rows), qat="int8", rules=["weights4-block32:#0"], epochs=1)


def test_a_batch_of_one_has_no_variance(data: Dataset) -> None:
    b = Builder("squeezed", seed=1)
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 8, kernel=3, activation="RELU")
    x = b.conv2d(b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=True), 8, activation="RELU")
    model = b.build({"y": b.conv2d(x, 4)})
    images = np.random.default_rng(1).normal(size=(37, 8, 8, 3)).astype(np.float32)
    parts = Dataset.from_arrays(images[:33]), Dataset.from_arrays(images[33:])
    trained = train(model, parts[0], validation=parts[1], prune="0.5", batch=32, epochs=1)

    assert len(trained.result.curve) == 1
