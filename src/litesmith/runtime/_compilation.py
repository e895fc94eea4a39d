# SPDX-License-Identifier: Apache-2.0
"""The facts about how a session's model was compiled."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from litesmith.runtime._backend import BackendName
from litesmith.runtime._partitions import Partition, partitions
from litesmith.runtime._source import ModelSource


@dataclass(frozen=True)
class Compilation:
    """What is known about how a session's model was compiled.

    Attributes:
        threads: Threads of the CPU kernels.
        kernels: Which kernels were asked for.
        delegate: The instruction set of Litesmith's delegate, e.g. "avx2"; empty if it takes no part.
        backend: "compiled" is LiteRT's C API; "interpreter" the wheel's Interpreter.
        reason: Why it is the Interpreter; empty if it is not.
        load_ms: Time to read the file.
        compile_ms: Time to compile it and to allocate its memory.
        fully_accelerated: What LiteRT says about it; None where it says nothing. True even if no operator was
            taken by the accelerator that was asked for, as long as all were taken by some: see `partitions`.
        log: What LiteRT logged meanwhile.
    """

    threads: int
    kernels: str
    delegate: str
    backend: BackendName
    reason: str
    load_ms: float
    compile_ms: float
    fully_accelerated: bool | None
    log: tuple[str, ...]
    _source: ModelSource = field(repr=False)

    @functools.cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Which operators XNNPACK and Litesmith's delegate take; found out by compiling once more, on first use."""
        return partitions(self._source, threads=self.threads, kernels=self.kernels, verify=False)
