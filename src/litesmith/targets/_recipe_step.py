# SPDX-License-Identifier: Apache-2.0
"""The rewrites that help a target as a step of recipes: `fix(xnnpack) → int8`. It comes first: others see what it made."""

from __future__ import annotations

from typing import Any

from litesmith.model import Model
from litesmith.optimize import Option, Step, StepKind, register_step
from litesmith.optimize._recipe import QUANTIZING
from litesmith.targets._fix import fix
from litesmith.targets._rules import TARGETS


def _apply(model: Model, step: Step, _data: Any) -> Model:
    return fix(model, target=step.get("target")).model


register_step("fix", StepKind({"target": Option(str, TARGETS, "xnnpack")}, _apply, stage=QUANTIZING - 40))
