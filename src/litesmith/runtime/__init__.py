# SPDX-License-Identifier: Apache-2.0
"""LiteRT: the binding to its C API, Session, and what is in a model as the runtime sees it."""

from litesmith.runtime._compilation import Compilation
from litesmith.runtime._custom_op import custom_op, custom_ops, forget_custom_op, load_custom_op
from litesmith.runtime._custom_op_replace import replace_op
from litesmith.runtime._inspect import (
    Delegation,
    Inspection,
    OperatorGroup,
    SignatureFacts,
    TensorFacts,
    inspect,
    scheme,
)
from litesmith.runtime._litert import litert_version
from litesmith.runtime._native import LITESMITH, REDUCED_PRECISION, delegate_path, native_tier, without_native
from litesmith.runtime._partitions import XNNPACK, Partition, partitions
from litesmith.runtime._profile import ProfileEvent
from litesmith.runtime._run import OutputFacts, Run, random_inputs, run
from litesmith.runtime._selfcheck import LitesmithWarning, why_not_litert
from litesmith.runtime._session import Session

__all__ = [
    "LITESMITH",
    "REDUCED_PRECISION",
    "XNNPACK",
    "Compilation",
    "Delegation",
    "Inspection",
    "LitesmithWarning",
    "OperatorGroup",
    "OutputFacts",
    "Partition",
    "ProfileEvent",
    "Run",
    "Session",
    "SignatureFacts",
    "TensorFacts",
    "custom_op",
    "custom_ops",
    "delegate_path",
    "forget_custom_op",
    "inspect",
    "litert_version",
    "load_custom_op",
    "native_tier",
    "partitions",
    "random_inputs",
    "replace_op",
    "run",
    "scheme",
    "why_not_litert",
    "without_native",
]
