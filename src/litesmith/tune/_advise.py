# SPDX-License-Identifier: Apache-2.0
"""Advise a road before anything is measured: walk the decision tree, and say why at each branch."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from litesmith.errors import RecipeError, UsageError
from litesmith.model import Model
from litesmith.optimize import Recipe
from litesmith.result import Result
from litesmith.tune._budget import parse_share
from litesmith.tune._tree import TREE, Fork, Leaf

TOLERANCES = ("hardly anything", "a little", "much")
_HARDLY, _LITTLE = 0.002, 0.02
"""Drops up to these are hardly anything, and a little."""
_RECURRENT = frozenset({"WHILE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"})


@dataclass(frozen=True)
class Node:
    """A place of the tree as it is drawn.

    Attributes:
        depth: how many questions come before it.
        answer: that leads here; empty at the root.
        text: the question asked here, or the recipe of a leaf.
        is_leaf: whether a road ends here.
        taken: whether the road goes through it.
    """

    depth: int
    answer: str
    text: str
    is_leaf: bool
    taken: bool


@dataclass(frozen=True)
class Advice(Result, kind="advice", schema=1):
    """A road: the recipe, the reasons at each branch, what it costs, and the tree it comes from.

    Attributes:
        recipe: as text.
        reasons: one for each branch.
        cost: of the road.
        warnings: what about this model speaks against it.
        command: what to run next.
        tree: all places, from the root down, those of the road taken marked.
    """

    recipe: str
    reasons: tuple[str, ...]
    cost: str
    warnings: tuple[str, ...]
    command: str
    tree: tuple[Node, ...]


def advise(
    model: Model | str | Path | None = None,
    *,
    data: str = "none",
    target: str = "cpu",
    max_drop: str | float = "1%",
    purpose: str = "latency",
) -> Advice:
    """Return which recipe the field would take, with the reasons, before anything is measured.

    Args:
        model: looked at for what speaks against the road: recurrent layers, weights that are quantized already.
        data: "none", "unlabelled" samples, or "labelled" ones.
        target: "cpu", "gpu", "edgetpu", "hexagon" or "npu".
        max_drop: how much of the score may be lost.
        purpose: what matters most on a CPU: "latency", "size" in memory, or "download".

    Example:
        >>> advise(data="unlabelled").recipe, advise(target="gpu").recipe
        ('int8', 'float16')
    """
    share = parse_share(max_drop)
    tolerance = TOLERANCES[(share > _HARDLY) + (share >= _LITTLE)]
    answers = {"data": data, "target": target, "tolerance": tolerance, "purpose": purpose}
    for fork in _forks(TREE):
        known = [branch.answer for branch in fork.branches]
        if answers[fork.key] not in known:
            raise UsageError(f"{fork.key} cannot be {answers[fork.key]!r}; choose one of {', '.join(known)}")
    reasons = []
    place: Fork | Leaf = TREE
    while isinstance(place, Fork):
        branch = next(b for b in place.branches if b.answer == answers[place.key])
        reasons.append(f"{place.question} {branch.answer}: {branch.because}")
        place = branch.to
    return Advice(
        recipe=place.recipe,
        reasons=tuple(reasons),
        cost=place.cost,
        warnings=tuple(_warnings(model, place)),
        command=_command(model, place, data, share),
        tree=tuple(_nodes(TREE, answers)),
    )


def _forks(place: Fork | Leaf) -> list[Fork]:
    if isinstance(place, Leaf):
        return []
    return [place, *(fork for branch in place.branches for fork in _forks(branch.to))]


def _nodes(
    place: Fork | Leaf, answers: dict[str, str], *, depth: int = 0, answer: str = "", taken: bool = True
) -> list[Node]:
    if isinstance(place, Leaf):
        return [Node(depth, answer, place.recipe, True, taken)]
    found = [Node(depth, answer, place.question, False, taken)]
    for branch in place.branches:
        chosen = taken and answers[place.key] == branch.answer
        found += _nodes(branch.to, answers, depth=depth + 1, answer=branch.answer, taken=chosen)
    return found


def _warnings(model: Model | str | Path | None, leaf: Leaf) -> list[str]:
    found = []
    try:
        Recipe.parse(leaf.recipe)
    except RecipeError as error:
        found.append(f"this version cannot take all steps: {error}")
    if model is None:
        return found
    read = model if isinstance(model, Model) else Model.load(model)
    kinds = {operator.kind for _, _, operator in read.operators()}
    loops = sorted(kinds & _RECURRENT)
    if loops and leaf.recipe.startswith("int8"):
        found.append(f"{', '.join(loops)}: inside loops activations stay float; dynamic may be as good")
    if any(t.is_quantized or t.dtype == "float16" for graph in read.subgraphs for t in graph.tensors):
        undo = ", or add --dequantize" if leaf.command.startswith("litesmith quantize") else ""
        found.append(f"the file is quantized already: start from the float one{undo}")
    if "CUSTOM" in kinds:
        found.append("custom operators stay as they are, and an accelerator will not take them")
    return found


def _command(model: Model | str | Path | None, leaf: Leaf, data: str, share: float) -> str:
    name = "model.tflite" if model is None or isinstance(model, Model) else shlex.quote(str(model))
    samples = "" if data == "none" else " --data samples/"
    return leaf.command.format(model=name, data=samples, drop=f"{100 * share:g}%")
