# SPDX-License-Identifier: Apache-2.0
"""A real model with markup for names: on every page that shows them they are text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import litesmith
from litesmith import Model, samples
from litesmith.accuracy import diagnose
from litesmith.measure import profile
from litesmith.report import page_of, render
from litesmith.result import Result

NAME = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with such a name for everything that has one."""
    model = samples.model()
    tensors = tuple(replace(t, name=f"{NAME}{number}") for number, t in enumerate(model.main.tensors))
    graph = replace(model.main, name=NAME, tensors=tensors)
    target = tmp_path_factory.mktemp("names") / f"{NAME.replace('/', '')}.tflite"
    replace(model, subgraphs=(graph, *model.subgraphs[1:]), description=NAME).save(target)
    return target


@pytest.fixture(scope="module")
def results(path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    few = samples.dataset("test")[:100]
    quantized = litesmith.quantize(Model.load(path), scheme="int8", data=few[:8], recover=())
    tuned = litesmith.tune(
        path,
        few,
        only=["int8(minmax, recover=, samples=8)"],
        max_drop="90%",
        minimize="size",
        seconds=0.05,
        workers=1,
        output=tmp_path_factory.mktemp("tune"),
    )
    return {
        "profile": profile(path, runs=5),
        "diagnose": diagnose(path, quantized.model, few[:8]),
        "coverage": quantized.coverage,
        "tune": tuned,
    }


@pytest.mark.parametrize("name", ["profile", "diagnose", "coverage", "tune"])
def test_names_of_a_real_model_are_text(name: str, results: dict[str, Result]) -> None:
    html = render(page_of(results[name]))

    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10
    assert html.count("<script") == 1, "the page's own"
    assert "<script>alert" not in html


def test_plots_of_a_real_model_are_text(results: dict[str, Result]) -> None:
    drawings = [drawing.svg(standalone=True) for drawing in page_of(results["tune"]).drawings()]

    assert "<script" not in "".join(drawings)
    assert "&lt;script&gt;alert(1)" in "".join(drawings)
