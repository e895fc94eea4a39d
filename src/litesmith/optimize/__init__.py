# SPDX-License-Identifier: Apache-2.0
"""Passes that turn one Model into a smaller or faster one, one algorithm a file."""

from litesmith.optimize._apply_recipe import Applied, RecipeCoverage, StepCoverage, recipe
from litesmith.optimize._build import Quantized
from litesmith.optimize._calibrate import calibrate
from litesmith.optimize._channels import ChannelGroupCoverage, ChannelsCoverage, Narrowed, channels
from litesmith.optimize._cluster import ClusterCoverage, Clustered, ClusteredLayer, cluster
from litesmith.optimize._compressed_size import FileSizes, file_sizes
from litesmith.optimize._coverage import Coverage, OperatorCoverage, PassReport
from litesmith.optimize._data_free import data_free_ranges
from litesmith.optimize._dequantize import dequantize
from litesmith.optimize._fold import FoldCoverage, Folded, FoldedLayer, fold
from litesmith.optimize._layer_rules import LayerRule
from litesmith.optimize._prune import PruneCoverage, Pruned, PrunedLayer, prune
from litesmith.optimize._prune_speed import PruneSpeed
from litesmith.optimize._prune_store import StoreCoverage, Stored, store_sparse, unpack_sparse
from litesmith.optimize._quantize import quantize
from litesmith.optimize._ranges import Range, Ranges
from litesmith.optimize._recipe import Option, Recipe, Step, StepKind, register_step
from litesmith.optimize._scheme import SCHEMES, Rule, Scheme
from litesmith.optimize._weights import WeightOverride

import litesmith.optimize._compress_steps  # noqa: F401  isort: skip (makes its steps known to recipes)

__all__ = [
    "SCHEMES",
    "Applied",
    "ChannelGroupCoverage",
    "ChannelsCoverage",
    "ClusterCoverage",
    "Clustered",
    "ClusteredLayer",
    "Coverage",
    "FileSizes",
    "FoldCoverage",
    "Folded",
    "FoldedLayer",
    "LayerRule",
    "Narrowed",
    "OperatorCoverage",
    "Option",
    "PassReport",
    "PruneCoverage",
    "PruneSpeed",
    "Pruned",
    "PrunedLayer",
    "Quantized",
    "Range",
    "Ranges",
    "Recipe",
    "RecipeCoverage",
    "Rule",
    "Scheme",
    "Step",
    "StepCoverage",
    "StepKind",
    "StoreCoverage",
    "Stored",
    "WeightOverride",
    "calibrate",
    "channels",
    "cluster",
    "data_free_ranges",
    "dequantize",
    "file_sizes",
    "fold",
    "prune",
    "quantize",
    "recipe",
    "register_step",
    "store_sparse",
    "unpack_sparse",
]
