# SPDX-License-Identifier: Apache-2.0
"""Recipes go through text and TOML and back, and every mistake in them is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from litesmith.errors import RecipeError
from litesmith.model import Model
from litesmith.optimize import SCHEMES, Recipe, Rule, Step
from litesmith.optimize._recipe import _KINDS

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(
    "text",
    [
        "int8",
        "float16",
        "int8(percentile, equalize, bias) + float:SOFTMAX",
        "int8(mse, weights=mse, samples=100, io=int8, per_channel=no)",
        "float + int8:CONV_2D + int16x8:#3-7 + float:*/logits*",
        "weights4-block32",
        "dynamic(octav) → int8(minmax)",
    ],
)
def test_text_and_toml_lose_nothing(text: str, tmp_path: Path) -> None:
    recipe = Recipe.parse(text)

    assert Recipe.parse(str(recipe)) == recipe
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    recipe.to_toml(tmp_path / "recipe.toml")
    assert Recipe.from_toml(tmp_path / "recipe.toml") == recipe


def test_short_words_find_their_option() -> None:
    step = Recipe.parse("int8(entropy, equalize, bias)").steps[0]

    assert step.get("method") == "entropy"
    assert step.get("recover") == ("equalize", "bias")
    assert step.get("io") == "float"
    assert str(step) == "int8(entropy, equalize, bias)"


def _values(name: str) -> st.SearchStrategy[dict[str, Any]]:
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for key, option in _KINDS[name].options.items():
        if option.kind is tuple:
            parts[key] = st.lists(st.sampled_from(option.choices), unique=True, min_size=1).map(tuple)
        elif option.choices:
            parts[key] = st.sampled_from(option.choices)
        else:
            parts[key] = {int: st.integers(1, 10**6), bool: st.booleans()}[option.kind]
    return st.fixed_dictionaries({}, optional=parts)


_names = st.sampled_from(sorted(SCHEMES.keys() - {"relaxed"}))  # which no rule can name
_rules = st.builds(Rule, st.sampled_from(["SOFTMAX", "#4", "#1-9", "*head*", "a b/c"]), _names)
_steps = _names.flatmap(lambda n: st.builds(Step, st.just(n), _values(n), st.lists(_rules, max_size=2).map(tuple)))


@example(Recipe((Step("int8", {"samples": 1_000_000}, ()),)))
@given(st.lists(_steps, max_size=3).map(tuple).map(Recipe))
def test_any_recipe_comes_back(recipe: Recipe) -> None:
    assert Recipe.parse(str(recipe)) == recipe
    assert Recipe.from_toml(recipe.to_toml()) == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int9", "no step 'int9'"),
        ("int8(best)", "no option 'best'"),
        ("int8(speed=3)", "no option 'speed'"),
        ("int8(samples=many)", "must be a number"),
        ("int8(percentile, minmax)", "two values for method"),
        ("int8(per_channel=maybe)", "yes or no"),
        ("int8(method=best)", "cannot be 'best'"),
        ("int8 + SOFTMAX", "not a rule"),
        ("int8 + int9:SOFTMAX", "no scheme 'int9'"),
        ("int8 + relaxed:SOFTMAX", "relaxed:SOFTMAX: relaxed is said of a whole model"),
        ("float16(percentile)", "no option 'percentile'"),
        ("int8)(", "not a step"),
        ("channels(2.0)", r"'channels\(2\)' makes no sense: the share of channels to keep must be above 0"),
        ("channels(0.5, max_macs=0.5)", "give one of keep, max_macs and max_latency_ms, not 2"),
        ("channels(multiple=0)", "multiples of 1 or more"),
        ("prune(3)", "below 1, not 3"),
        ("prune(0.8, 2:4)", "always has a sparsity of 0.5"),
        ("cluster(0)", "2 clusters or more, not 0"),
        ("int8 → fold(1)", "2 or more channels, not 1"),
    ],
)
def test_mistakes_in_text_are_named(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not TOML"),
        ("speed = 1", "no 'speed'"),
        ('[[step]]\nmethod = "mse"', "needs a name"),
        ('[[step]]\nname = "int8"\nsamples = "all"', "must be a int"),
        ('[[step]]\nname = "int8"\nrecover = ["luck"]', "cannot be 'luck'"),
        ('[[step]]\nname = "int8"\nrecover = 5', "recover of 'int8' must be a list of words.*not 5"),
        ('[[step]]\nname = "int8"\nrecover = [["bias"]]', "must be a list of words"),
        ('[[step]]\nname = "int8"\nrules = 5', "the rules of 'int8' must be a list of words.*not 5"),
        ('[step]\nname = "int8"', r"write \[\[step\]\] with two brackets"),
        ("step = [1]", r"write \[\[step\]\] with two brackets"),
    ],
)
def test_mistakes_in_toml_are_named(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.from_toml(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"missing.toml' cannot be read: No such file"):
        Recipe.from_toml(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(RecipeError, match=r"latin.toml' cannot be read"):
        Recipe.from_toml(tmp_path / "latin.toml")


def test_a_recipe_is_applied(convnet: Model, images: list[Array]) -> None:
    model = Recipe.parse("int8(minmax) + float:SOFTMAX").apply(convnet, images)

    assert {t.dtype for t in model.main.tensors} >= {"int8", "int32"}
