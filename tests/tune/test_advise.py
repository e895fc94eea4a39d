# SPDX-License-Identifier: Apache-2.0
"""The decision tree: every road ends, says why, and is drawn."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.tune.conftest import Command

from litesmith import samples
from litesmith.errors import UsageError
from litesmith.tune import Advice, advise
from litesmith.tune._tree import TREE, Fork, Leaf

DATA = ("none", "unlabelled", "labelled")
TARGETS = ("cpu", "gpu", "edgetpu", "hexagon", "npu")


def _leaves(place: Fork | Leaf) -> list[Leaf]:
    return [place] if isinstance(place, Leaf) else [leaf for branch in place.branches for leaf in _leaves(branch.to)]


def test_every_road_ends_with_a_recipe_and_a_reason_for_each_branch() -> None:
    seen = set()
    for data, target, lost, purpose in itertools.product(
        DATA, TARGETS, (0, 0.01, 0.05), ("latency", "size", "download")
    ):
        advice = advise(data=data, target=target, max_drop=lost, purpose=purpose)
        taken = [node for node in advice.tree if node.taken]
        assert len(advice.reasons) == len(taken) - 1
        assert taken[-1].is_leaf
        assert taken[-1].text == advice.recipe
        assert advice.cost
        seen.add((advice.recipe, advice.cost))

    assert seen == {(leaf.recipe, leaf.cost) for leaf in _leaves(TREE)}


def test_the_field_s_known_cases() -> None:
    assert advise(target="gpu").recipe == "float16"
    assert advise(data="none").recipe == "dynamic"
    assert "io=int8" in advise(target="edgetpu", data="unlabelled").recipe
    assert advise(target="npu", data="unlabelled", max_drop="0.1%").recipe == "int16x8"
    assert advise(data="labelled").command.startswith("litesmith tune")


def test_a_plain_float_model_has_nothing_against_it() -> None:
    assert advise(samples.model(), data="unlabelled").warnings == ()


def test_a_recurrent_model_is_told(assets: Path) -> None:
    warnings = advise(assets / "mnist/lstm_float.tflite", data="unlabelled").warnings

    assert any("stay float" in text for text in warnings)


def test_a_quantized_model_is_told(tmp_path: Path) -> None:
    from litesmith import quantize

    half = quantize(samples.model(), scheme="float16").model
    half.save(tmp_path / "half.tflite")

    assert any("quantized already" in text for text in advise(tmp_path / "half.tflite").warnings)


def test_answers_that_are_none_are_refused() -> None:
    for bad in ({"target": "abacus"}, {"data": "lots"}, {"purpose": "joy"}, {"max_drop": "all"}):
        with pytest.raises(UsageError):
            advise(**bad)  # type: ignore[arg-type]


def test_the_result_survives_json_and_the_command_prints_the_tree(litesmith: Command) -> None:
    advice = advise(data="unlabelled")
    done = litesmith("advise", samples.path(), "--data", "unlabelled")
    wrong = litesmith("advise", "--target", "abacus")

    assert Advice.from_json(advice.to_json()) == advice
    assert done.returncode == 0, done.stderr
    assert "● Where does it run?" in done.stdout
    assert "    ● latency" in done.stdout
    assert "next: litesmith quantize" in done.stdout
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
