# SPDX-License-Identifier: Apache-2.0
"""Which table of options each builtin operator takes."""

from __future__ import annotations

import functools

from litesmith.model._flatbuffer import union_tables

_SHARED = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SUM": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}


@functools.cache
def options_table(kind: str) -> str | None:
    """Return the name of the options table of a builtin operator, None when it has no options.

    Example:
        >>> options_table("CONV_2D"), options_table("MEAN"), options_table("RELU")
        ('Conv2DOptions', 'ReducerOptions', None)
    """
    by_name = {t.lower(): t for union in ("BuiltinOptions", "BuiltinOptions2") for t in union_tables(union)}
    return _SHARED.get(kind) or by_name.get(kind.replace("_", "").lower() + "options")
