# SPDX-License-Identifier: Apache-2.0
"""What a `.tflite` is: read, verify, edit, write, cost of each operator; build one from scratch."""

from litesmith.model._builder import Builder, Value
from litesmith.model._cost import Cost, OperatorCost, cost
from litesmith.model._dtypes import BITS, numpy_dtype
from litesmith.model._expose import expose
from litesmith.model._flatbuffer import Record
from litesmith.model._graph import (
    ABSENT,
    Buffer,
    Metadata,
    Model,
    Operator,
    Quantization,
    Signature,
    Subgraph,
    Tensor,
    constant,
)
from litesmith.model._input_metadata import InputMetadata, input_metadata
from litesmith.model._modernize import modernize
from litesmith.model._operators import options_table
from litesmith.model._shapes import infer, same_padding
from litesmith.model._sparsity import densify, sparsify

__all__ = [
    "ABSENT",
    "BITS",
    "Buffer",
    "Builder",
    "Cost",
    "InputMetadata",
    "Metadata",
    "Model",
    "Operator",
    "OperatorCost",
    "Quantization",
    "Record",
    "Signature",
    "Subgraph",
    "Tensor",
    "Value",
    "constant",
    "cost",
    "densify",
    "expose",
    "infer",
    "input_metadata",
    "modernize",
    "numpy_dtype",
    "options_table",
    "same_padding",
    "sparsify",
]
