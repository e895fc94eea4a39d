# SPDX-License-Identifier: Apache-2.0
"""Hardware that is not here: whether a model runs whole on it, by rules kept as data, and safe rewrites that help."""

from litesmith.targets._check import Compatibility, OperatorVerdict, Problem, Reason, compat
from litesmith.targets._fix import Fixed, fix
from litesmith.targets._rules import TARGETS

__all__ = ["TARGETS", "Compatibility", "Fixed", "OperatorVerdict", "Problem", "Reason", "compat", "fix"]
