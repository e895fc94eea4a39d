# SPDX-License-Identifier: Apache-2.0
"""The copies that one's own code makes when it feeds and reads a model: each with its line and what removes it."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from litesmith.measure._calls import ALIGNMENT, DTYPE, FEED, LAYOUT, RUN, Call, watch_calls
from litesmith.result import Result

_VIEW = "or use litesmith.Session, whose inputs and outputs are the model's own memory"
_REMEDIES = {
    "Interpreter.set_tensor": f"write into interpreter.tensor(index)()[...] while the data is made; {_VIEW}",
    "Interpreter.get_tensor": f"read interpreter.tensor(index)(), good until the next invoke; {_VIEW}",
    "SignatureRunner.__call__": f"use set_tensor and get_tensor, which do not allocate at each call; {_VIEW}",
    "TensorBuffer.write": "LiteRT's Python buffers have no view; litesmith.Session has: session.inputs[name][...] = …",
    "TensorBuffer.read": "LiteRT's Python buffers have no view; litesmith.Session has: session.outputs[name]",
    "Session.run": "write into session.inputs[name][...] where the data is made, then call session.run()",
    "Session.feed": "write into session.inputs[name][...] where the data is made, then call session.run()",
    "Session.__call__": "write into session.inputs, call session.run() and read session.outputs: all are views",
}
_REASONS = {
    LAYOUT: "make the array C-contiguous once, where it is made (np.ascontiguousarray); LiteRT copies it at each call",
    DTYPE: "make a NumPy array of the model's type once, where the data is made; it is converted at each call",
    ALIGNMENT: "allocate it at a multiple of 64 bytes: this buffer is a copy, and the array itself stays as it is",
}


@dataclass(frozen=True)
class Copy:
    """All copies that one line made by one call for one reason."""

    file: str
    line: int
    function: str
    code: str
    api: str
    direction: str  # feed or read
    reason: str  # API, layout, dtype or alignment
    count: int
    bytes: int  # of one copy
    total_us: float
    remedy: str

    @property
    def mean_us(self) -> float:
        """What one copy takes."""
        return self.total_us / self.count

    @property
    def place(self) -> str:
        """The file, as seen from here, and the line."""
        return f"{short_path(self.file)}:{self.line}"


@dataclass(frozen=True)
class Audit(Result, kind="audit", schema=1):
    """What ``audit_copies`` saw: the copies, dearest first, and what running the models took meanwhile."""

    copies: tuple[Copy, ...]
    runs: int
    run_us: float
    command: tuple[str, ...]

    @property
    def copy_us(self) -> float:
        """What all copies took."""
        return sum(copy.total_us for copy in self.copies)

    @property
    def share(self) -> float:
        """What the copies take of copying and running together."""
        whole = self.copy_us + self.run_us
        return self.copy_us / whole if whole else 0.0

    def plot(self) -> Any:
        """Return a Plotly figure: a bar for each place that copies."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "µs in all", "template": "plotly_white"})
        shown = self.copies[::-1]
        figure.add_bar(
            x=[c.total_us for c in shown],
            y=[f"{c.place} {c.api}" for c in shown],
            orientation="h",
            hovertext=[f"{c.reason}: {c.remedy}" for c in shown],
        )
        return figure


class CopyAudit:
    """An audit under way; ``copies`` and ``result`` may be read meanwhile and afterwards."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The copies so far, dearest first."""
        return group_copies(self._calls)

    @property
    def result(self) -> Audit:
        """The result so far."""
        runs = [call for call in list(self._calls) if call.kind == RUN]
        return Audit(self.copies, len(runs), sum(call.duration_us for call in runs), tuple(sys.argv))


@contextlib.contextmanager
def audit_copies() -> Iterator[CopyAudit]:
    """Watch the code inside and list each copy that feeding and reading LiteRT models makes there.

    Works on the wheel's Interpreter, its signature runners, CompiledModel and TensorBuffer, and on Session, in all
    threads. Also reachable as ``litesmith.copies.audit``.

    Example:
        >>> import numpy as np
        >>> from litesmith.runtime import Session
        >>> from litesmith.runtime._selfcheck import TINY_MODEL
        >>> with audit_copies() as audit, Session(TINY_MODEL) as session:
        ...     _ = session.run({"x": np.zeros((3, 2), np.float32).T})
        >>> audit.copies[0].reason
        'layout'
    """
    with watch_calls() as calls:
        yield CopyAudit(calls)


def group_copies(calls: Sequence[Call]) -> tuple[Copy, ...]:
    """Return the copies among some calls, one entry for each place and reason, dearest first."""
    groups: dict[tuple[str, int, str, str, int], list[Call]] = {}
    for call in list(calls):
        if call.reason:
            groups.setdefault((call.file, call.line, call.api, call.reason, call.bytes), []).append(call)
    copies = [
        Copy(
            file=file,
            line=line,
            function=found[0].function,
            code=linecache.getline(file, line).strip(),
            api=api,
            direction="feed" if found[0].kind == FEED else "read",
            reason=reason,
            count=len(found),
            bytes=size,
            total_us=sum(call.duration_us for call in found),
            remedy=_REASONS.get(reason) or _REMEDIES.get(api, _VIEW.removeprefix("or ")),
        )
        for (file, line, api, reason, size), found in groups.items()
    ]
    return tuple(sorted(copies, key=lambda copy: -copy.total_us))


def short_path(file: str) -> str:
    """Return a path as seen from the working folder, when that is shorter."""
    if not os.path.isabs(file):  # noqa: PTH117  (also "<stdin>", which is no path)
        return file
    return min(file, os.path.relpath(file), key=len)
