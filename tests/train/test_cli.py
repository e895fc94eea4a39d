# SPDX-License-Identifier: Apache-2.0
"""`litesmith train` and `litesmith retrain`, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.train.conftest import pattern_images

from litesmith.cli.retrain import show
from litesmith.model import Model
from litesmith.train import Retrained, RetrainResult, Score, labels_of


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "litesmith", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_train_writes_a_file_and_says_what_it_is_worth(learned: Model, tmp_path: Path) -> None:
    images, labels = pattern_images(200)
    learned.save(tmp_path / "float.tflite")
    np.savez(tmp_path / "data.npz", x=images, y=labels)
    done = run(
        "train", tmp_path / "float.tflite", "--data", tmp_path / "data.npz", "--qat", "int8", "--epochs", 2, "-o",
        tmp_path / "int8.tflite", "--report", tmp_path / "page.html",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "written" in done.stdout
    assert "top1" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert any(t.dtype == "int8" for t in Model.load(tmp_path / "int8.tflite").main.tensors)
    assert "Training of float.tflite" in (tmp_path / "page.html").read_text()
    assert not list(tmp_path.glob("*.checkpoint*"))
    wrong = run("train", tmp_path / "float.tflite", "--data", tmp_path / "data.npz", "--qat", "int3", "-o", "x.tflite")
    assert wrong.returncode == 2
    assert wrong.stderr.strip().startswith("litesmith: qat cannot be 'int3'")


def test_retrain_writes_two_files_with_labels(learned: Model, tmp_path: Path) -> None:
    images, labels = pattern_images(160)
    learned.save(tmp_path / "float.tflite")
    names = np.array(["across", "down", "checkers", "blob"])
    np.savez(tmp_path / "data.npz", x=images, y=labels, class_names=names)
    done = run(
        "retrain", "--base", tmp_path / "float.tflite", "--data", tmp_path / "data.npz", "--freeze", "--json", "-o",
        tmp_path / "mine.tflite",
    )  # fmt: skip
    again = run(
        "retrain", "--base", tmp_path / "float.tflite", "--data", tmp_path / "data.npz", "--freeze", "-o",
        tmp_path / "mine.tflite",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "retrain"
    assert "is a guess" in " ".join(again.stdout.split()), "how images are normalized"
    for name in ("mine", "mine_int8"):
        assert labels_of(Model.load(tmp_path / f"{name}.tflite")) == ("across", "down", "checkers", "blob")


def test_of_many_classes_the_most_confused_pairs_are_shown(
    learned: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tuple(f"kind {number}" for number in range(14))
    confusion = 9 * np.eye(14, dtype=int)
    confusion[3, 11], confusion[5, 2], confusion[5, 3] = 7, 2, 2
    confusion[2, 5] = 2
    confusion[2, 2] = 1
    score = Score(0.9, 0.8, 0.95, 1000)
    result = RetrainResult(
        base="model", classes=names, counts=(90,) * 14, samples=(1, 1, 1), preprocess="", head=0.8, validation=0.9,
        kept="head", float32=score, int8=score, confusion=tuple(tuple(map(int, row)) for row in confusion), curve=(),
        seconds=1.0,
    )  # fmt: skip
    show(Retrained(learned, learned, result), tmp_path / "a.tflite", tmp_path / "b.tflite")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    start = next(i for i, words in enumerate(lines) if words[:3] == ["Confused", "most", "often,"])
    shown = [" ".join(words) for words in lines[start:] if "of" in words[-3:]]

    assert " ".join(lines[start]).endswith("4 of 4 pairs")
    assert shown[-4:] == [
        "kind 3 kind 11 7 of 16", "kind 2 kind 5 2 of 3", "kind 5 kind 2 2 of 13", "kind 5 kind 3 2 of 13",
    ]  # fmt: skip
