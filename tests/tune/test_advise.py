# SPDX-License-Identifier: Apache-2.0
"""The decision tree: every road ends, says why, and is drawn."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.tune.conftest import Command
from typer.main import get_command

from litesmith import samples
from litesmith.cli._app import command_line
from litesmith.errors import UsageError
from litesmith.optimize import Recipe
from litesmith.optimize._scheme import SCHEMES
from litesmith.tune import Advice, advise
from litesmith.tune import _candidates as candidates
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


def _steps(command: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the verbs of a printed command and their options, as the command line reads them."""
    found = []
    for part in command.split(" && "):
        program, verb, *words = shlex.split(part)
        assert program == "litesmith"
        group: Any = get_command(command_line([verb]))
        with group.commands[verb].make_context(verb, words) as context:
            found.append((verb, context.params))
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_command_is_one_that_the_command_line_takes(target: str, tmp_path: Path) -> None:
    samples.model().save(model := tmp_path / "my model.tflite")
    for data, lost, purpose in itertools.product(DATA, (0, 0.01, 0.05), ("latency", "size", "download")):
        advice = advise(model, data=data, target=target, max_drop=lost, purpose=purpose)
        steps = _steps(advice.command)
        verb, options = steps[0]
        wanted = Recipe.parse(advice.recipe)
        wanted.check_order()

        assert options["model"] == model
        if len(steps) == 1:
            assert (options["data"] is None) == (data == "none")
        for name, given in steps:
            if name == "quantize":
                assert given["scheme"] in SCHEMES
                assert given["scheme"] == wanted.steps[-1].name
                assert given["strict"] == wanted.steps[-1].get("strict")
        if verb == "tune":
            tried = {*candidates.SCHEMES, *(options["recipe"] or ())} if not options["only"] else {*options["only"]}
            assert str(wanted) in {str(Recipe.parse(recipe)) for recipe in tried}, "the search does not try it"
            assert not any(Recipe.parse(recipe).trains for recipe in tried)
            assert target == "cpu" or (options["only"] and options["minimize"] == "size"), "its latency is not ours"
        assert wanted.trains == (verb == "train")


def test_a_command_makes_what_the_recipe_makes(litesmith: Command, tmp_path: Path) -> None:
    samples.model().save(tmp_path / "model.tflite")
    advice = advise(purpose="download")
    for part in advice.command.split(" && "):
        done = litesmith(*shlex.split(part)[1:])
        assert done.returncode == 0, done.stderr
    made = Recipe.parse(advice.recipe).apply(samples.model())

    assert (tmp_path / "weights8.tflite").read_bytes() == made.to_bytes()


def test_the_field_s_known_cases() -> None:
    assert advise(target="gpu").recipe == "float16"
    assert advise(data="none").recipe == "dynamic"
    assert "io=int8" in advise(target="edgetpu", data="unlabelled").recipe
    assert advise(target="npu", data="unlabelled", max_drop="0.1%").recipe == "int16x8"
    assert advise(data="labelled").command.startswith("litesmith tune")
    assert advise(data="labelled", max_drop="5%").recipe == "channels(0.75) → int8", "three quarters are kept"
    ((verb, options),) = _steps(advise(data="labelled", purpose="download").command)
    assert (verb, options["qat"], options["prune"]) == ("train", "int8", "0.8")


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
    long = litesmith("advise", "--target", "edgetpu", "--data", "labelled")
    wrong = litesmith("advise", "--target", "abacus")

    assert Advice.from_json(advice.to_json()) == advice
    assert done.returncode == 0, done.stderr
    assert "● Where does it run?" in done.stdout
    assert "    ● latency" in done.stdout
    assert "next: litesmith quantize" in done.stdout
    assert f"next: {advise(target='edgetpu', data='labelled').command}\n" in long.stdout, "on one line, to be copied"
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
