# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a `.tflite`: the graph as a module, training with quantization, sparsity and clusters, and retraining.

PyTorch is the extra ``train``; this folder imports without it, and says so when it is used.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from litesmith.train._metadata import labels_of, with_metadata
from litesmith.train._result import Epoch, Trained, TrainResult
from litesmith.train._retrain import Retrained, RetrainResult, Score, retrain
from litesmith.train._train import train
from litesmith.train._wish import PRUNING, QAT

if TYPE_CHECKING:
    from litesmith.train._feed import Augment
    from litesmith.train._loop import TrainEvent
    from litesmith.train._module import GraphModule, to_torch
    from litesmith.train._operators import known_operators

_NEED_TORCH = {
    "Augment": "_feed",
    "GraphModule": "_module",
    "TrainEvent": "_loop",
    "known_operators": "_operators",
    "to_torch": "_module",
}

__all__ = [
    "PRUNING",
    "QAT",
    "Augment",
    "Epoch",
    "GraphModule",
    "RetrainResult",
    "Retrained",
    "Score",
    "TrainEvent",
    "TrainResult",
    "Trained",
    "known_operators",
    "labels_of",
    "retrain",
    "to_torch",
    "train",
    "with_metadata",
]


def __getattr__(name: str) -> Any:
    """Import what needs PyTorch when it is first used."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'litesmith.train' has no attribute {name!r}")
    from litesmith.train._torch import require_torch

    require_torch(f"litesmith.train.{name}")
    return getattr(importlib.import_module(f"litesmith.train.{_NEED_TORCH[name]}"), name)


class _Verb(types.ModuleType):
    """The folder and the verb have one name: ``litesmith.train(...)`` works however the folder was imported."""

    def __call__(self, *arguments: Any, **options: Any) -> Trained:
        return train(*arguments, **options)


sys.modules[__name__].__class__ = _Verb
