# SPDX-License-Identifier: Apache-2.0
"""Pruning, channel removal, clustering, folding and sparse storage as steps of recipes.

    channels(0.75) → prune(0.8, 4x1) → cluster(32) → fold(64) → int8 → sparse

Channels go first, as they change shapes; zeros before shared values, which keep them; folding keeps all values, and
integers zeros and shared ones; storing the zeros sparse comes last. ``recipe`` puts those in another order right; a Recipe
refuses it before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litesmith.model import Model
from litesmith.optimize._channels import Narrowed, channels, check_options
from litesmith.optimize._cluster import Clustered, check_clusters, cluster
from litesmith.optimize._cluster_kmeans import STARTS
from litesmith.optimize._fold import DEFAULT_WIDTH, Folded, check_width, fold
from litesmith.optimize._prune import BUDGETS, METHODS, Pruned, prune
from litesmith.optimize._prune_patterns import PATTERNS, check_pattern
from litesmith.optimize._prune_store import STORES, Stored, stored
from litesmith.optimize._recipe import QUANTIZING, Option, Step, StepKind, register_step

_RULES = {"skip": Option(tuple, (), ()), "include": Option(tuple, (), ())}


def _rules(step: Step) -> Sequence[str]:
    return [f"{action}:{match}" for action in _RULES if action in step.options for match in step.get(action)]


def _given(step: Step, *names: str) -> dict[str, Any]:
    return {name: step.get(name) for name in names if name in step.options}


def _prune(model: Model, step: Step, data: Any) -> Pruned:
    options = _given(step, "method", "budget", "samples", "store", "reorder", "seed")
    options["pattern"] = _pattern(step)
    if step.get("method") == "magnitude":
        data = None
    return prune(model, sparsity=step.get("sparsity"), data=data, rules=_rules(step), **options)


def _pattern(step: Step) -> str:
    return str(step.get("block" if "block" in step.options else "pattern"))


def _check_prune(step: Step) -> None:
    check_pattern(_pattern(step), step.get("sparsity"))


def _channels(model: Model, step: Step, data: Any) -> Narrowed:
    options = _given(step, "multiple", "repair", "samples", "seed")
    return channels(model, data=data, rules=_rules(step), **_target(step), **options)


def _target(step: Step) -> dict[str, Any]:
    """Return how much of the channels stays, in the way that was asked for."""
    return _given(step, "keep", "max_macs", "max_latency_ms") or {"keep": step.get("keep")}


def _check_channels(step: Step) -> None:
    target = _target(step)
    check_options(target.get("keep"), target.get("max_macs"), target.get("max_latency_ms"), step.get("multiple"))


def _cluster(model: Model, step: Step, data: Any) -> Clustered:
    options = _given(step, "clusters", "per_channel", "start", "all_layers", "samples", "seed")
    return cluster(model, data=data if step.get("fit") else None, rules=_rules(step), **options)


def _fold(model: Model, step: Step, _data: Any) -> Folded:
    return fold(model, width=step.get("width"))


def _sparse(model: Model, step: Step, _data: Any) -> Stored:
    return stored(model, half=step.get("half"))


register_step(
    "channels",
    StepKind(
        {
            "keep": Option(float, default=0.75),
            "max_macs": Option(float),
            "max_latency_ms": Option(float),
            "multiple": Option(int, default=8),
            "repair": Option(bool, default=True),
            "samples": Option(int, default=500),
            "seed": Option(int, default=0),
            **_RULES,
        },
        _channels,
        number="keep",
        stage=QUANTIZING - 30,
        check=_check_channels,
    ),
)
register_step(
    "prune",
    StepKind(
        {
            "sparsity": Option(float, default=0.8),
            "pattern": Option(str, PATTERNS, "unstructured"),
            "block": Option(str, ("4x1",)),
            "method": Option(str, METHODS, "auto"),
            "budget": Option(str, BUDGETS, "global"),
            "store": Option(str, STORES, "dense"),
            "reorder": Option(bool, default=False),
            "samples": Option(int, default=500),
            "seed": Option(int, default=0),
            **_RULES,
        },
        _prune,
        number="sparsity",
        stage=QUANTIZING - 20,
        check=_check_prune,
    ),
)
register_step(
    "cluster",
    StepKind(
        {
            "clusters": Option(int, default=32),
            "per_channel": Option(bool, default=False),
            "start": Option(str, STARTS, "k-means++"),
            "fit": Option(bool, default=True),
            "all_layers": Option(bool, default=False),
            "samples": Option(int, default=128),
            "seed": Option(int, default=0),
            **_RULES,
        },
        _cluster,
        number="clusters",
        stage=QUANTIZING - 10,
        check=lambda step: check_clusters(step.get("clusters")),
    ),
)
register_step(
    "fold",
    StepKind(
        {"width": Option(int, default=DEFAULT_WIDTH)},
        _fold,
        number="width",
        stage=QUANTIZING - 5,
        check=lambda step: check_width(step.get("width")),
    ),
)
register_step("sparse", StepKind({"half": Option(bool, default=False)}, _sparse, stage=QUANTIZING + 10))
