# SPDX-License-Identifier: Apache-2.0
"""The decision, made by measurement: advise a road, search under a budget, hold a build to its lock, choose a model."""

from __future__ import annotations

import sys
import types
from typing import Any

from litesmith.tune._advise import Advice, Node, advise
from litesmith.tune._budget import Budget
from litesmith.tune._choose import Choice, Measured, Variant, choose
from litesmith.tune._compare import compare
from litesmith.tune._decide import Verdict
from litesmith.tune._gate import Check, Gate, gate
from litesmith.tune._jobs import OnAccelerator, TunedLayer
from litesmith.tune._lock import Lock, read_lock, reproduce
from litesmith.tune._plan import Plan, Stage
from litesmith.tune._trial import Score, Timing, Trial, pareto
from litesmith.tune._tune import Tuned, plan, tune

__all__ = [
    "Advice",
    "Budget",
    "Check",
    "Choice",
    "Gate",
    "Lock",
    "Measured",
    "Node",
    "OnAccelerator",
    "Plan",
    "Score",
    "Stage",
    "Timing",
    "Trial",
    "Tuned",
    "TunedLayer",
    "Variant",
    "Verdict",
    "advise",
    "choose",
    "compare",
    "gate",
    "pareto",
    "plan",
    "read_lock",
    "reproduce",
    "tune",
]


class _Verb(types.ModuleType):
    """This folder as the verb of its name: ``litesmith.tune(…)`` is ``litesmith.tune.tune(…)``."""

    def __call__(self, *arguments: Any, **options: Any) -> Tuned:
        """Search; see ``tune``."""
        return tune(*arguments, **options)


sys.modules[__name__].__class__ = _Verb
