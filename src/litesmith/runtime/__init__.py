# SPDX-License-Identifier: Apache-2.0
"""LiteRT: the binding to its C API, Session, and what is in a model as the runtime sees it."""

from litesmith.runtime._compilation import Compilation
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
from litesmith.runtime._partitions import Partition, partitions
from litesmith.runtime._profile import ProfileEvent
from litesmith.runtime._run import OutputFacts, Run, random_inputs, run
from litesmith.runtime._selfcheck import LitesmithWarning, why_not_litert
from litesmith.runtime._session import Session

__all__ = [
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
    "inspect",
    "litert_version",
    "partitions",
    "random_inputs",
    "run",
    "scheme",
    "why_not_litert",
]
