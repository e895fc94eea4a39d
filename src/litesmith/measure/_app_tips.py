# SPDX-License-Identifier: Apache-2.0
"""What to change in a program that runs a model: the file, the line, and what the change is worth at most."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.measure._audit import Copy, short_path
from litesmith.measure._calls import LOAD, RUN, Call

_COPY_SHARE = 0.01  # of the wall time: below, a change is not worth a line
_LOAD_SHARE = 0.02
_CODE_SHARE = 0.1
_MODEL_SHARE = 0.3


@dataclass(frozen=True)
class Tip:
    """One line to change, how, and the share of the wall time that it is about."""

    file: str
    line: int
    code: str
    share: float
    text: str

    @property
    def place(self) -> str:
        """The file, as seen from here, and the line."""
        return f"{short_path(self.file)}:{self.line}"


def find_tips(
    calls: Sequence[Call], copies: Sequence[Copy], functions: Sequence[tuple[str, str, int, float]], wall_ms: float
) -> tuple[Tip, ...]:
    """Return what to change, the most worth first.

    Args:
        calls: All calls to LiteRT.
        copies: Those of them that copy.
        functions: The program's own functions: name, file, hottest line, share of the wall time.
        wall_ms: The wall time of the program.
    """
    found = [
        *_repeated_loads(calls, wall_ms),
        *_slow_copies(copies, wall_ms),
        *_hot_code(functions),
        *_the_model(calls, wall_ms),
    ]
    return tuple(sorted(found, key=lambda tip: -tip.share))


def _tip(file: str, line: int, share: float, text: str) -> Tip:
    return Tip(file, line, linecache.getline(file, line).strip(), share, text)


def _repeated_loads(calls: Sequence[Call], wall_ms: float) -> list[Tip]:
    groups: dict[tuple[str, int, str], list[Call]] = {}
    for call in calls:
        if call.kind == LOAD:
            groups.setdefault((call.file, call.line, call.api), []).append(call)
    tips = []
    for (file, line, api), group in groups.items():
        again = sum(call.duration_us for call in group[1:]) / 1000 / wall_ms
        if len(group) < 2 or again < _LOAD_SHARE:
            continue
        what = "prepares the model's memory anew" if api.startswith("SignatureRunner") else "loads the model"
        tips.append(_tip(file, line, again, f"{api} {what} {len(group)} times here; do it once, before the loop"))
    return tips


def _slow_copies(copies: Sequence[Copy], wall_ms: float) -> list[Tip]:
    shares = [(copy, copy.total_us / 1000 / wall_ms) for copy in copies]
    return [
        _tip(copy.file, copy.line, share, f"{copy.api} copies {copy.bytes:,} bytes at each call; {copy.remedy}")
        for copy, share in shares
        if share >= _COPY_SHARE
    ]


def _hot_code(functions: Sequence[tuple[str, str, int, float]]) -> list[Tip]:
    return [
        _tip(file, line, share, f"{name} is not the model's time but the program's own; most of it is on this line")
        for name, file, line, share in functions
        if share >= _CODE_SHARE
    ]


def _the_model(calls: Sequence[Call], wall_ms: float) -> list[Tip]:
    groups: dict[tuple[str, int], float] = {}
    for call in calls:
        if call.kind == RUN:
            place = call.file, call.line
            groups[place] = groups.get(place, 0.0) + call.duration_us / 1000 / wall_ms
    text = "the model itself: see litesmith profile, threads and quantize for what it could save"
    return [_tip(file, line, share, text) for (file, line), share in groups.items() if share >= _MODEL_SHARE]
