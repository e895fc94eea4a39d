# SPDX-License-Identifier: Apache-2.0
"""Turn what LiteRT says when something fails into one message that a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SEVERITY = re.compile(r"^ERROR: (\[[\w.]+:\d+\] )?")
_NOISE = re.compile(
    r"^(INFO|WARNING|VERBOSE|DEBUG): |^See instructions: |^Failed to allocate tensors|^Failed to build TFL|^\s*$"
)
_FLEX_HELP = re.compile(r"Make sure you apply/link the Flex delegate.*?(?=Node number|$)")

_ADVICE: tuple[tuple[str, str], ...] = (
    (r"edgetpu-custom-op", "it is compiled for the Edge TPU; use the file it was compiled from"),
    (r"ethos-u", "it is compiled for the Ethos-U; use the file it was compiled from"),
    (r"DISPATCH_OP", "it is compiled for an NPU; use the file it was compiled from"),
    (r"Select TensorFlow op", "it needs TensorFlow's Flex delegate; convert it again without Select TF ops"),
    (
        r"unresolved custom op: (?P<op>[^\n.]+)",
        (
            "LiteRT has no kernel for the custom operator {op!r}; register one with litesmith.custom_op({op!r}), or on "
            "the command line with --custom-op FILE.py"
        ),
    ),
)


def explain(said: Iterable[str]) -> str:
    """Return the reason in the lines that LiteRT logged or reported, with advice where there is any.

    Example:
        >>> explain(["INFO: hello", "ERROR: [a.cc:1] Node number 3 (CONV_2D) failed to prepare."])
        'Node number 3 (CONV_2D) failed to prepare.'
    """
    reasons: list[str] = []
    for line in said:
        text = _FLEX_HELP.sub("", _SEVERITY.sub("", line)).strip()
        if not _NOISE.match(text) and text not in reasons:
            reasons.append(text)
    reason = " ".join(reasons)
    return reason + _advice(reason)


def _advice(reason: str) -> str:
    for pattern, advice in _ADVICE:
        found = re.search(pattern, reason)
        if found:
            return f" ({advice.format(**found.groupdict())})"
    return ""
