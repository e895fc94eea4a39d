# SPDX-License-Identifier: Apache-2.0
"""`litesmith quantize` and `litesmith demo`: the files they write and what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.cli.conftest import Command

from litesmith.model import Model
from litesmith.optimize import Coverage
from litesmith.samples import path as sample_path
from litesmith.samples._demo import Demo


def test_int8_with_data(litesmith: Command, tmp_path: Path) -> None:
    source, data = sample_path(), sample_path("fashion-train.npz")
    done = litesmith(
        "quantize",
        source,
        "--data",
        data,
        "--preprocess",
        "scale=1/255",
        "--samples",
        50,
        "-o",
        "q.tflite",
        "--save-ranges",
        "r.json",
    )

    assert done.returncode == 0, done.stderr
    assert "quantized" in done.stdout
    assert any(t.dtype == "int8" for t in Model.load(tmp_path / "q.tflite").main.tensors)
    again = litesmith("quantize", source, "--ranges", "r.json", "-o", "again.tflite", "--json")
    assert Coverage.from_json(again.stdout).quantized


def test_the_range_of_the_input_without_data(litesmith: Command, tiny: Path) -> None:
    assumed = litesmith("quantize", tiny, "-o", "q.tflite")
    said = litesmith("quantize", tiny, "-o", "q.tflite", "--input-range", "0,255")
    named = litesmith("quantize", tiny, "-o", "q.tflite", "--input-range", "image=0,255", "--json")

    assert "'image' is assumed to be normalized" in " ".join(assumed.stdout.split())
    assert "'image' is taken to lie between 0 and 255" in " ".join(said.stdout.split()), said.stderr
    assert any("between 0 and 255" in note for note in Coverage.from_json(named.stdout).notes)


def test_mistakes_are_told(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((4, 7, 7, 3), np.float32))
    cases = {
        ("--scheme", "int3"): 2,
        ("--rule", "float:NO_SUCH_KIND", "--scheme", "dynamic"): 1,
        ("--data", "wrong.npy"): 1,
        ("--recover", "magic"): 2,
        ("--recipe", "none.toml"): 1,
        ("--ranges", "none.json"): 1,
        ("--input-range", "0..255"): 2,
        ("--input-range", "photo=0,255"): 2,
        ("--save-ranges", "none/ranges.json"): 1,
    }
    for options, code in cases.items():
        done = litesmith("quantize", tiny, "-o", "q.tflite", *options)
        assert done.returncode == code, (options, done.stderr)
        assert "Traceback" not in done.stderr
        assert options[1] in done.stderr or not options[1].startswith("none"), "the file is named"
        assert not (tmp_path / "q.tflite").exists()


def test_a_quantized_file_is_refused_or_made_float_first(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    assert litesmith("quantize", tiny, "--scheme", "float16", "-o", "half.tflite").returncode == 0
    refused = litesmith("quantize", "half.tflite", "--scheme", "dynamic", "-o", "again.tflite")

    assert refused.returncode == 1
    assert "--dequantize" in refused.stderr
    assert (
        litesmith("quantize", "half.tflite", "--scheme", "dynamic", "--dequantize", "-o", "again.tflite").returncode
        == 0
    )


def test_the_demo_tells_the_story_and_leaves_a_page(litesmith: Command, tmp_path: Path) -> None:
    done = litesmith("demo", "--seconds", 0.2)
    folder = tmp_path / "litesmith-demo"
    result = Demo.from_json(folder / "demo.json")

    assert done.returncode == 0, done.stderr
    assert str((folder / "index.html").resolve()) in done.stdout.replace("\n", "")
    assert "★" in done.stdout
    assert result.reproduced
    winner = result.tuned.winner
    assert winner is not None
    assert winner.held_out is not None
    assert winner.held_out.drop is None or winner.held_out.drop.drop <= 0.005  # half a point
    careful, careless = (
        next(t for t in result.tuned.trials if t.recipe == r) for r in ("int8", "int8(minmax, recover=)")
    )
    assert careful.drop is not None
    assert careless.drop is not None
    assert careful.drop < careless.drop
    # Which file is the fastest is the machine's to say: where none beats float, the page says to ship that.
    name = "the float model" if winner.number == 0 else winner.name
    assert f"Ship {name}" in (folder / "index.html").read_text()
