# SPDX-License-Identifier: Apache-2.0
"""Schemes: what activations and weights become; and rules, which give single operators another scheme."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from litesmith.errors import UsageError
from litesmith.model import Operator, Subgraph


@dataclass(frozen=True)
class Scheme:
    """One way to store and compute.

    Attributes:
        name: by which it is asked for.
        domain: the type of the activations: "float32", "int8" or "int16".
        weights: how weights are stored: "float32", "float16", "int8", "int4", or "int4" in blocks of ``block``.
        hybrid: float kernels that take integer weights and quantize their input on the fly.
        block: how many weights along the input share a scale; 0 means a whole output channel.
    """

    name: str
    domain: str
    weights: str
    hybrid: bool = False
    block: int = 0

    @property
    def bits(self) -> int:
        """Bits of a stored weight."""
        return {"float32": 32, "float16": 16, "int8": 8, "int4": 4}[self.weights]

    @property
    def rounding_matters(self) -> bool:
        """Whether the rounding of weights is most of the error: they have few bits, or activations have more."""
        return self.bits <= 6 or (self.bits == 8 and self.domain != "int8")

    @property
    def is_static(self) -> bool:
        """Whether activations are integers, whose ranges must be known."""
        return self.domain != "float32"


RELAXED = "relaxed"
"""Float as it is, with the word in the file that it may be computed with less precision."""
_BLOCKS = (32, 64, 128, 256)
SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("float", "float32", "float32"),
        Scheme(RELAXED, "float32", "float32"),
        Scheme("float16", "float32", "float16"),
        Scheme("dynamic", "float32", "int8", hybrid=True),
        Scheme("dynamic4", "float32", "int4", hybrid=True),
        Scheme("weights8", "float32", "int8"),
        Scheme("weights4", "float32", "int4"),
        *(Scheme(f"weights4-block{size}", "float32", "int4", hybrid=True, block=size) for size in _BLOCKS),
        Scheme("int8", "int8", "int8"),
        Scheme("int8w4", "int8", "int4"),
        Scheme("int16x8", "int16", "int8"),
    )
}


def find_scheme(name: str) -> Scheme:
    """Return the scheme of this name."""
    if name not in SCHEMES:
        raise UsageError(f"there is no scheme {name!r}; choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


_KIND = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_INDEX = re.compile(r"#(\d+)(?:-(\d+))?\Z")


@dataclass(frozen=True)
class Rule:
    """Another scheme for the operators that match; of several rules that match, the last one counts.

    ``match`` is a kind of operator (``SOFTMAX``), an index or a span of indices in the main subgraph (``#12``,
    ``#3-7``), or a pattern with ``*`` and ``?`` for the name of the tensor that the operator writes.

    Example:
        >>> str(Rule("SOFTMAX", "float"))
        'float:SOFTMAX'
        >>> Rule.parse("int16x8:#3-7")
        Rule(match='#3-7', scheme='int16x8')
    """

    match: str
    scheme: str

    def __post_init__(self) -> None:
        if find_scheme(self.scheme).name == RELAXED:
            raise UsageError(f"{self}: {RELAXED} is said of a whole model, not of single operators")
        if not self.match:
            raise UsageError("a rule needs something to match: a kind of operator, #index, or a name pattern")

    def __str__(self) -> str:
        return f"{self.scheme}:{self.match}"

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Return the rule written as ``scheme:match``."""
        scheme, colon, match = text.strip().partition(":")
        if not colon:
            raise UsageError(f"{text!r} is not a rule; write scheme:match, such as float:SOFTMAX or int16x8:#12")
        return cls(match.strip(), scheme.strip())

    def matches(self, subgraph: Subgraph, index: int, operator: Operator, *, is_main: bool = True) -> bool:
        """Say whether the rule is for this operator."""
        span = _INDEX.match(self.match)
        if span:
            first, last = int(span[1]), int(span[2] or span[1])
            return is_main and first <= index <= last
        if _KIND.match(self.match):
            return operator.name == self.match
        return any(fnmatch.fnmatchcase(subgraph.tensors[t].name, self.match) for t in operator.outputs if t >= 0)
