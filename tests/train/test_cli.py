# SPDX-License-Identifier: Apache-2.0
"""`litesmith train` and `litesmith retrain`, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.train.conftest import pattern_images

from litesmith.model import Model
from litesmith.train import labels_of


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

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "retrain"
    for name in ("mine", "mine_int8"):
        assert labels_of(Model.load(tmp_path / f"{name}.tflite")) == ("across", "down", "checkers", "blob")
