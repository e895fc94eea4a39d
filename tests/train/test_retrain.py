# SPDX-License-Identifier: Apache-2.0
"""Retraining on a user's own folder: images, sounds, broken and missing files, and labels that travel in the file."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.conftest import pattern_images, small_net

from litesmith.accuracy import evaluate
from litesmith.data import Dataset, Preprocess
from litesmith.errors import DataError, ModelError, UsageError
from litesmith.model import Buffer, Builder, Metadata, Model, Quantization
from litesmith.train import labels_of, retrain, with_metadata
from litesmith.train._audio_features import mfcc
from litesmith.train._metadata import ENTRY, LABELS_FILE, InputMeaning, meaning_of
from litesmith.train._metadata_read import normalization_of
from litesmith.train._new_head import find_head, with_classes

NAMES = ("across", "down", "checkers", "blob")


def folder_of_images(root: Path, counts: dict[str, int]) -> Path:
    from PIL import Image

    images, labels = pattern_images(600, seed=7)
    for name, count in counts.items():
        folder = root / name
        folder.mkdir(parents=True)
        chosen = np.flatnonzero(labels == NAMES.index(name))[:count]
        for number, row in enumerate(chosen):
            pixels = np.clip(images[row] * 60 + 128, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def folder_of_sounds(root: Path) -> Path:
    import soundfile

    random = np.random.default_rng(0)
    time = np.arange(16_000) / 16_000
    for name, hertz in (("low", 200), ("middle", 700), ("high", 2000)):
        (root / name).mkdir(parents=True)
        for number in range(16):
            tone = np.sin(2 * np.pi * hertz * random.uniform(0.9, 1.1) * time) * random.uniform(0.2, 0.8)
            soundfile.write(root / name / f"{number}.wav", tone + random.normal(0, 0.05, len(time)), 16_000)
    return root


def test_a_classifier_is_retrained_for_other_classes(learned: Model, tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path / "data", {"across": 60, "blob": 60, "checkers": 25})
    (folder / "blob" / "broken.png").write_bytes(b"no image")
    base = tmp_path / "learned.tflite"
    learned.save(base)
    done = retrain(base, folder, preprocess="mean=128 std=60", epochs=3, batch=16)
    result = done.result

    assert result.classes == ("across", "blob", "checkers")
    assert result.counts == (60, 60, 25)
    assert result.float32.accuracy > 0.9
    assert result.float32.low < result.float32.accuracy <= result.float32.high
    assert result.int8.accuracy > 0.85
    assert result.int8.size_bytes < result.float32.size_bytes
    assert np.sum(result.confusion) == result.samples[2]
    assert np.trace(result.confusion) == round(result.float32.accuracy * result.samples[2])
    assert any("1 samples left out" in note and "broken.png" in note for note in result.notes)
    assert any("uneven" in note for note in result.notes)
    for model, name in ((done.model, "float"), (done.quantized, "int8")):
        model.save(tmp_path / f"{name}.tflite")
        again = Model.load(tmp_path / f"{name}.tflite")
        assert labels_of(again) == ("across", "blob", "checkers")
        assert [m.name for m in again.metadata].count(ENTRY) == 1
        assert again.main.tensors[again.main.outputs[0]].shape == (1, 3)
    test = Dataset.open(folder.parent / "data" / "across", preprocess="mean=128 std=60").take(5)
    assert evaluate(tmp_path / "float.tflite", test, metric="agreement", reference=tmp_path / "int8.tflite").value > 0.5


def test_a_backbone_of_the_zoo_begins_with_random_weights(tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path, {"across": 30, "down": 30})
    done = retrain("resnet_8", folder, width=0.5, epochs=4, batch=8, learning_rate=5e-3)

    assert done.result.preprocess.startswith("channels=rgb resize=32x32")
    assert done.result.float32.accuracy > 0.7
    assert len(done.result.curve) == 4
    assert not any("running" in t.name for t in done.model.main.tensors)


def test_sounds_become_cepstral_coefficients(tmp_path: Path) -> None:
    done = retrain("ds_cnn", folder_of_sounds(tmp_path), width=0.25, epochs=2, batch=8, freeze=True)

    assert done.result.classes == ("high", "low", "middle")
    assert done.result.float32.accuracy > 0.8
    assert done.result.kept == "head"
    for model in (done.model, done.quantized):
        (coefficients,) = root(model).tables(3)[0].tables(2)
        assert coefficients.table(3).byte(0) == 1, "the input is no image, but features"
        assert coefficients.text(1).endswith("16,000 Hz: 49 frames with 10 coefficients each.")
        assert not coefficients.has(4), "nothing is normalized"
        assert labels_of(model) == ("high", "low", "middle")


def test_a_net_that_takes_the_sound_itself_says_so(tmp_path: Path) -> None:
    b = Builder("waves", seed=0)
    x = b.op("RESHAPE", b.input("sound", (1, 16_000)), np.array([1, 100, 160], np.int32), new_shape=[1, 100, 160])
    x = b.fully_connected(x, 8, activation="RELU", keep_num_dims=True)
    model = b.build({"y": b.fully_connected(b.op("MEAN", x, np.array([1], np.int32)), 4)})
    done = retrain(model, folder_of_sounds(tmp_path), freeze=True)
    (sound,) = root(done.model).tables(3)[0].tables(2)

    assert sound.table(3).byte(0) == 4, "the input is audio"
    assert (sound.table(3).table(1).number(0), sound.table(3).table(1).number(1)) == (16_000, 1)
    assert root(done.model).text(7) == "1.3.0"
    assert not done.result.notes[1:], "sound has no normalization to guess"


def test_features_of_a_tone_tell_its_height() -> None:
    time = np.arange(16_000) / 16_000
    noise = np.random.default_rng(0).normal(0, 0.1, len(time))
    low, again, high = (mfcc(np.sin(2 * np.pi * hertz * time) + noise, 49, 10) for hertz in (200, 205, 2000))

    assert low.shape == (49, 10)
    assert np.abs(low - again).mean() < 0.2 * np.abs(low - high).mean()


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"blob": 30}, "there is one class, 'blob': a classifier needs two or more"),
        ({"blob": 30, "down": 3}, "too few samples.*'down' 3; each class needs 5"),
    ],
)
def test_folders_that_cannot_work_are_refused(
    counts: dict[str, int], message: str, learned: Model, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        retrain(learned, folder_of_images(tmp_path, counts), preprocess="mean=128 std=60")


def test_a_folder_of_broken_files_is_refused(learned: Model, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(6):
            (tmp_path / name / f"{number}.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="12 of 12 samples cannot be read"):
        retrain(learned, tmp_path, preprocess="mean=128 std=60")


def test_unlabelled_data_and_other_mistakes_are_refused(learned: Model, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs samples of named classes"):
        retrain(learned, Dataset.from_arrays(pattern_images(30)[0]))
    with pytest.raises(UsageError, match="are for backbones of the zoo"):
        retrain(learned, tmp_path, width=0.5)
    with pytest.raises(UsageError, match="did you mean mobilenet_v2"):
        retrain("mobilnet_v2", tmp_path)
    b = Builder("no classifier")
    with pytest.raises(ModelError, match="is no classifier whose last layer can be replaced"):
        find_head(b.build({"y": b.op("TANH", b.input("x", (1, 4)))}).main)


@pytest.mark.parametrize("softmax", [False, True])
def test_a_new_head_changes_nothing_before_it(softmax: bool) -> None:
    source = small_net(softmax=softmax)
    changed = with_classes(source, 9)
    changed.verify()

    assert changed.main.tensors[changed.main.outputs[0]].shape == (1, 9)
    old, new = ({t.name: t for t in m.main.tensors} for m in (source, changed))
    assert {n for n in old if old[n] != new[n]} == {"head/weight", "head/bias", "head", *(["probabilities"] * softmax)}


def test_a_head_behind_a_reshape_can_be_replaced(assets: Path) -> None:
    for name in ("mobilenet_v1_0.25_224", "mobilenet_v2"):
        model = with_classes(Model.load(assets / f"vision/{name}_float.tflite"), 5)
        model.verify()
        assert model.main.tensors[model.main.outputs[0]].shape[-1] == 5


# ---------------------------------------------------------------- the metadata, read as the Task library does


class Table:
    """A FlatBuffer table, read by slot: enough to check what was written without the code that wrote it."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place = data, place
        self.vtable = place - struct.unpack_from("<i", data, place)[0]

    def _field(self, slot: int) -> int | None:
        size = struct.unpack_from("<H", self.data, self.vtable)[0]
        if 4 + 2 * slot >= size:
            return None
        offset = struct.unpack_from("<H", self.data, self.vtable + 4 + 2 * slot)[0]
        return self.place + offset if offset else None

    def _follow(self, place: int) -> int:
        return int(place + struct.unpack_from("<I", self.data, place)[0])

    def byte(self, slot: int) -> int:
        place = self._field(slot)
        return 0 if place is None else self.data[place]

    def has(self, slot: int) -> bool:
        return self._field(slot) is not None

    def number(self, slot: int) -> int:
        place = self._field(slot)
        return 0 if place is None else int(struct.unpack_from("<I", self.data, place)[0])

    def table(self, slot: int) -> Table:
        place = self._field(slot)
        assert place is not None
        return Table(self.data, self._follow(place))

    def text(self, slot: int) -> str:
        place = self._field(slot)
        assert place is not None
        start = self._follow(place)
        length = struct.unpack_from("<I", self.data, start)[0]
        return self.data[start + 4 : start + 4 + length].decode()

    def vector(self, slot: int) -> list[int]:
        place = self._field(slot)
        assert place is not None
        start = self._follow(place)
        count = struct.unpack_from("<I", self.data, start)[0]
        return [start + 4 + 4 * i for i in range(count)]

    def tables(self, slot: int) -> list[Table]:
        return [Table(self.data, self._follow(place)) for place in self.vector(slot)]

    def floats(self, slot: int) -> list[float]:
        return [struct.unpack_from("<f", self.data, place)[0] for place in self.vector(slot)]


def root(model: Model) -> Table:
    data = bytes(next(m.buffer.data for m in model.metadata if m.name == ENTRY))
    assert data[4:8] == b"M001"
    return Table(data, struct.unpack_from("<I", data)[0])


def check_classifier(metadata: Table, *, labels: str) -> tuple[list[float], list[float]]:
    """Check what the image classifier of the Task library asks for; return the normalization."""
    (graph,) = metadata.tables(3)
    (image,), (scores,) = graph.tables(2), graph.tables(3)
    content = image.table(3)
    assert content.byte(0) == 2, "the input is an image"
    assert content.table(1).byte(0) == 1, "in RGB"
    unit = image.tables(4)[0]
    assert unit.byte(0) == 1, "it is normalized"
    file = scores.tables(6)[0]
    assert (file.text(0), file.byte(2)) == (labels, 2), "the labels of the axis"
    return unit.table(1).floats(0), unit.table(1).floats(1)


def test_the_metadata_is_what_the_task_library_reads(learned: Model, tmp_path: Path) -> None:
    meaning = meaning_of(Preprocess.parse("scale=1/255 mean=0.5 std=0.25"), (1, 12, 12, 3))
    model = with_metadata(learned, NAMES, meaning, name="patterns")
    model.save(tmp_path / "m.tflite")
    again = Model.load(tmp_path / "m.tflite")
    mean, std = check_classifier(root(again), labels=LABELS_FILE)

    assert root(again).text(0) == "patterns"
    assert mean == pytest.approx([127.5])
    assert std == pytest.approx([63.75])
    assert labels_of(again) == NAMES
    import zipfile

    with zipfile.ZipFile(tmp_path / "m.tflite") as archive:
        assert archive.read(LABELS_FILE).decode().split() == list(NAMES)


def test_a_published_file_has_the_same_form(assets: Path) -> None:
    found = sorted((assets / "corpus").glob("*mobilenet_v1_0.25_224_1_metadata_1.tflite"))
    if not found:
        pytest.skip("the file with metadata is not among the assets")
    mean, std = check_classifier(root(Model.load(found[0])), labels="labels.txt")

    assert (mean, std) == ([127.5], [127.5])


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("hand_landmark_lite", (0.0, 0.0, 0.0), (255.0, 255.0, 255.0)),
        ("face_detection_full_range_sparse", (127.5,), (127.5,)),
        ("mobilenet_v1_0.25_224_float", None, None),
    ],
)
def test_the_normalization_of_published_files_is_read(name: str, mean: Any, std: Any, assets: Path) -> None:
    found = normalization_of(Model.load(assets / f"vision/{name}.tflite"))

    assert (None if found is None else (found.mean, found.std)) == (None if mean is None else (mean, std))


def test_a_base_is_fed_as_its_metadata_says(learned: Model, tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path, {"across": 20, "blob": 20})
    meaning = meaning_of(Preprocess.parse("mean=128.5,127.1,126 std=60,61,62"), (1, 12, 12, 3))
    declared = retrain(with_metadata(learned, NAMES, meaning, name="patterns"), folder, freeze=True)
    unknown = retrain(learned, folder, freeze=True)
    given = retrain(learned, folder, freeze=True, preprocess="mean=128 std=60")

    assert declared.result.preprocess == "channels=rgb resize=12x12 mean=128.5,127.1,126.0 std=60.0,61.0,62.0"
    for model in (declared.model, declared.quantized):
        mean, std = check_classifier(root(model), labels=LABELS_FILE)
        assert (mean, std) == (pytest.approx([128.5, 127.1, 126]), [60, 61, 62])
        stats = root(model).tables(3)[0].tables(2)[0].table(5)
        assert stats.floats(0) == pytest.approx([126.5 / 60, 127.9 / 61, 129 / 62])
        assert stats.floats(1) == pytest.approx([-128.5 / 60, -127.1 / 61, -126 / 62])
    guesses = [[note for note in done.result.notes if "is a guess" in note] for done in (declared, unknown, given)]
    assert [len(found) for found in guesses] == [0, 1, 0]
    assert "'channels=rgb resize=12x12 mean=127.5 std=127.5'" in guesses[1][0]
    assert "--preprocess" in guesses[1][0]


@pytest.mark.parametrize(("dtype", "most", "least"), [("float32", 1.0, 0.0), ("uint8", 255.0, 0.0)])
def test_the_values_of_an_input_tell_how_it_is_normalized(dtype: str, most: float, least: float) -> None:
    """Without a normalization; those of a quantized file are the integers that it takes."""
    from flatbuffers import Builder as Bytes

    from litesmith.train import _metadata

    b = Bytes(0)
    values = [_metadata._floats(b, [value]) for value in (most, least)]
    stats = _metadata._table(b, {0: ("at", values[0]), 1: ("at", values[1])})
    image = _metadata._tensor(b, "image", _metadata._content(b, InputMeaning("image", 3)), stats=stats)
    graph = _metadata._table(b, {2: ("at", _metadata._vector(b, [image]))})
    b.Finish(_metadata._table(b, {3: ("at", _metadata._vector(b, [graph]))}), file_identifier=b"M001")
    model = small_net()
    tensors = list(model.main.tensors)
    place = model.main.inputs[0]
    scales = Quantization((1 / 255,), (0,)) if dtype == "uint8" else None
    tensors[place] = replace(tensors[place], dtype=dtype, quantization=scales)
    model = model.with_main(replace(model.main, tensors=tuple(tensors)))
    found = normalization_of(replace(model, metadata=(Metadata(ENTRY, Buffer(bytes(b.Output()))),)))

    assert found is not None
    assert (found.mean, found.std) == (pytest.approx((0.0,)), pytest.approx((255.0,)))


def test_damaged_metadata_declares_nothing(learned: Model) -> None:
    meaning = meaning_of(Preprocess.parse("mean=128 std=60"), (1, 12, 12, 3))
    model = with_metadata(learned, NAMES, meaning, name="patterns")
    whole = bytes(model.metadata[-1].buffer.data)
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(8, len(whole), 6):
            damaged[place] = random.integers(0, 256)
        found = normalization_of(replace(model, metadata=(Metadata(ENTRY, Buffer(bytes(damaged))),)))
        assert found is None or 0.0 not in found.std
    assert normalization_of(replace(model, metadata=(Metadata(ENTRY, Buffer(whole[:60])),))) is None


def test_the_meaning_of_an_input_follows_from_its_preprocessing() -> None:
    sound = meaning_of(Preprocess.of({"sample_rate": 16_000, "length": 16_000}), (1, 16_000))
    other: Any = meaning_of(Preprocess(), (1, 640))

    assert (sound.kind, sound.sample_rate) == ("audio", 16_000)
    assert other.kind == "features"
