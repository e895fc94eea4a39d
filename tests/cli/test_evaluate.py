# SPDX-License-Identifier: Apache-2.0
"""`litesmith evaluate`: a score, its interval, the drop."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Command

from litesmith.accuracy import Evaluation, evaluate
from litesmith.cli.evaluate import command
from litesmith.model import Model


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path / "samples.npz"
    np.savez(path, x=random.normal(size=(40, 16, 16, 3)).astype(np.float32), y=random.integers(0, 5, 40))
    return path


def test_options_are_the_functions_arguments() -> None:
    options, arguments = (inspect.signature(f).parameters for f in (command, evaluate))
    own = {"json", "save"}
    assert {name: p.default for name, p in options.items() if name not in own} == {
        name: p.default for name, p in arguments.items()
    }


def test_table_and_json_agree(litesmith: Command, tiny: Path, samples: Path) -> None:
    words = ("evaluate", tiny, "--data", samples, "--against", tiny)
    done, as_json = litesmith(*words), litesmith(*words, "--json")
    assert done.returncode == 0, done.stderr
    result = Evaluation.from_json(as_json.stdout)
    assert result.samples == 40
    assert f"{100 * result.value:.2f} %" in done.stdout
    assert "not significant" in done.stdout
    assert "40 samples are few" in done.stdout


def test_predictions_are_saved(litesmith: Command, tiny: Path, samples: Path, tmp_path: Path) -> None:
    done = litesmith("evaluate", tiny, "--data", samples, "--metric", "top2", "--save", "p.npz", "--limit", 10)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "p.npz")["prediction"].shape == (10,)


def test_a_metric_of_ones_own(litesmith: Command, tiny: Path, samples: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def largest(outputs, labels):\n    return outputs.reshape(len(labels), -1).max(1)\n"
    )
    for processes in (1, 2):
        done = litesmith(
            "evaluate", tiny, "--data", samples, "--metric", "mine:largest", "--processes", processes, "--json"
        )
        assert done.returncode == 0, done.stderr
        assert Evaluation.from_json(done.stdout).metric == "mine:largest"


def test_mistakes_are_explained(litesmith: Command, tiny: Path, samples: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", x=np.zeros((4, 16, 16, 3), np.float32))
    for words, code, message in (
        (("--data", "bare.npz"), 1, "needs labels"),
        (("--data", samples, "--metric", "best"), 2, "there is no metric 'best'"),
        (("--data", samples, "--kernels", "fast"), 2, "'fast' is none of delegate, xnnpack, builtin, reference"),
        (("--data", samples, "--metric", "agreement"), 2, "give it as reference"),
        (("--data", samples, "--class-names", "none.txt"), 1, "none.txt"),
    ):
        done = litesmith("evaluate", tiny, *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert message in " ".join(done.stderr.replace("│", " ").split())
    assert Model.load(tiny)
