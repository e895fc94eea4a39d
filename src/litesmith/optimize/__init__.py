# SPDX-License-Identifier: Apache-2.0
"""Passes that turn one Model into a smaller or faster one, one algorithm a file."""

from litesmith.optimize._calibrate import calibrate
from litesmith.optimize._coverage import Coverage, OperatorCoverage
from litesmith.optimize._data_free import data_free_ranges
from litesmith.optimize._dequantize import dequantize
from litesmith.optimize._quantize import Quantized, quantize
from litesmith.optimize._ranges import Range, Ranges
from litesmith.optimize._recipe import Option, Recipe, Step, StepKind, register_step
from litesmith.optimize._scheme import SCHEMES, Rule, Scheme
from litesmith.optimize._weights import WeightOverride

__all__ = [
    "SCHEMES",
    "Coverage",
    "OperatorCoverage",
    "Option",
    "Quantized",
    "Range",
    "Ranges",
    "Recipe",
    "Rule",
    "Scheme",
    "Step",
    "StepKind",
    "WeightOverride",
    "calibrate",
    "data_free_ranges",
    "dequantize",
    "quantize",
    "register_step",
]
