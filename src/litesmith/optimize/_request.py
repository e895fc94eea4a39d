# SPDX-License-Identifier: Apache-2.0
"""What a quantization was asked for, checked: the one value that building and recovery passes look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litesmith.errors import UsageError
from litesmith.optimize._range_methods import METHODS
from litesmith.optimize._scheme import Rule, Scheme, find_scheme
from litesmith.optimize._weight_ranges import DEFAULT_WEIGHT_METHOD, WEIGHT_METHODS
from litesmith.optimize._weights import Overrides

IO = {"float": "float32", "int8": "int8", "int16": "int16"}
HEADS = ("auto", "same", "float", "dynamic", "weights8")
_LEAST_HYBRID_ELEMENTS = 1024
"""Below this many weights, quantizing the input on the fly costs more than integer weights save."""


@dataclass(frozen=True, eq=False)
class Request:
    """Everything that a quantization was asked for; see ``quantize`` for the meaning of each field."""

    scheme: str
    rules: tuple[Rule, ...] = ()
    io: str = "float"
    per_channel: bool = True
    weight_ranges: str = DEFAULT_WEIGHT_METHOD
    method: str = "minmax"
    head: str = "same"
    strict: bool = False
    min_weight_elements: int = 0
    add_biases: bool = False
    weights: Overrides | None = None

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """The scheme of the model and those of the rules."""
        return tuple(find_scheme(name) for name in (self.scheme, *(rule.scheme for rule in self.rules)))


def checked_request(
    *,
    scheme: str,
    rules: Sequence[Rule | str],
    io: str,
    per_channel: bool,
    weight_ranges: str,
    method: str,
    head: str,
    strict: bool,
    min_weight_elements: int | None,
    weights: Overrides | None,
) -> Request:
    """Return the request; what was not given gets its default, and what does not exist raises."""
    base = find_scheme(scheme)
    _choose("inputs and outputs", io, IO)
    _choose("the head", head, HEADS)
    _choose("the range method", method, METHODS)
    _choose("the ranges of weights", weight_ranges, WEIGHT_METHODS)
    parsed = tuple(rule if isinstance(rule, Rule) else Rule.parse(rule) for rule in rules)
    if io != "float" and not any(s.is_static for s in (base, *(find_scheme(rule.scheme) for rule in parsed))):
        raise UsageError(
            f"inputs and outputs cannot be {io} in the scheme {scheme}, which computes in float; take int8 or int16x8, or "
            "leave inputs and outputs float (--io float)"
        )
    if head == "auto":
        head = "same" if strict or io != "float" else "dynamic"
    if min_weight_elements is None:
        min_weight_elements = _LEAST_HYBRID_ELEMENTS if base.hybrid else 0
    return Request(
        scheme=scheme,
        rules=parsed,
        io=io,
        per_channel=per_channel,
        weight_ranges=weight_ranges,
        method=method,
        head=head,
        strict=strict,
        min_weight_elements=min_weight_elements,
        weights=weights,
    )


def _choose(what: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise UsageError(f"{what} cannot be {value!r}; choose one of {', '.join(choices)}")
