# SPDX-License-Identifier: Apache-2.0
"""Ranges: between which reals each activation lies. Saved as JSON, loaded, and edited by hand or by name."""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass, replace
from typing import Any

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Model
from litesmith.model._channel_scales import ChannelScales
from litesmith.result import Result


@dataclass(frozen=True)
class Range:
    """The range of one tensor.

    Attributes:
        subgraph, tensor: which one, by index; ``name`` is for the reader.
        low, high: the range to quantize with.
        seen_low, seen_high: the smallest and the largest value that occurred; int16 covers all of it.
        channel_low, channel_high, channel_mean: per index of the last axis, where they were asked for.
    """

    subgraph: int
    tensor: int
    name: str
    low: float
    high: float
    seen_low: float
    seen_high: float
    channel_low: tuple[float, ...] | None = None
    channel_high: tuple[float, ...] | None = None
    channel_mean: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Ranges(Result, kind="ranges", schema=1):
    """The ranges of the activations of one model.

    Attributes:
        method: how ``low`` and ``high`` were chosen; "data-free" where no sample was seen.
        samples: how many samples were run.
        entries: one range a tensor.
        tensors: how many tensors each subgraph of the model has; empty where that is not known.
        channel_scales: how channels were rescaled (the pass "equalize") before the ranges were seen; who quantizes with
            the ranges rescales them likewise.
    """

    method: str
    samples: int
    entries: tuple[Range, ...]
    tensors: tuple[int, ...] = ()
    channel_scales: tuple[ChannelScales, ...] = ()

    @property
    def data_free(self) -> bool:
        """Whether the ranges come from bounds and propagation, not from samples."""
        return self.samples == 0

    def find(self, tensor: int, *, subgraph: int = 0) -> Range | None:
        """Return the range of a tensor, None where there is none."""
        return self._table().get((subgraph, tensor))

    def with_range(self, name: str, low: float, high: float) -> Ranges:
        """Return these ranges with another one for the tensors whose name matches the pattern (``*`` and ``?``)."""
        if not _is_range(low, high):
            raise UsageError(f"[{low}, {high}] is not a range; give two finite numbers, the smaller one first")
        hits = [fnmatch.fnmatchcase(entry.name, name) for entry in self.entries]
        if not any(hits):
            raise UsageError(f"no tensor with a range is called {name!r}; see Ranges.entries for the names")
        return replace(
            self,
            entries=tuple(
                replace(entry, low=float(low), high=float(high), seen_low=float(low), seen_high=float(high))
                if hit
                else entry
                for entry, hit in zip(self.entries, hits, strict=True)
            ),
        )

    def as_seen(self) -> Ranges:
        """Return these ranges as "minmax" would have them: everything that was seen."""
        entries = tuple(replace(entry, low=entry.seen_low, high=entry.seen_high) for entry in self.entries)
        return replace(self, method="minmax", entries=entries)

    def check(self, model: Model) -> None:
        """Raise where these are not ranges, or not those of this model."""
        for entry in self.entries:
            pairs = {
                "low and high": (entry.low, entry.high),
                "seen_low and seen_high": (entry.seen_low, entry.seen_high),
            }
            for what, (low, high) in pairs.items():
                if not _is_range(low, high):
                    raise OptimizeError(
                        f"{what} of {entry.name!r} are {low} and {high}, which is no range; give two finite numbers, the "
                        "smaller one first"
                    )
            has_subgraph = 0 <= entry.subgraph < len(model.subgraphs)
            tensors = model.subgraphs[entry.subgraph].tensors if has_subgraph else ()
            name = tensors[entry.tensor].name if 0 <= entry.tensor < len(tensors) else None
            if name != entry.name:
                found = "does not exist" if name is None else f"is {name!r}"
                raise OptimizeError(
                    f"the ranges are those of another model: tensor {entry.tensor} of subgraph {entry.subgraph} is "
                    f"{entry.name!r} there, and {found} here; calibrate this model"
                )
        counts = tensor_counts(model)
        if self.tensors and self.tensors != counts:
            raise OptimizeError(
                f"the ranges are those of another model: it has {', '.join(map(str, self.tensors))} tensors, this one "
                f"{', '.join(map(str, counts))}; calibrate this model"
            )

    def _table(self) -> dict[tuple[int, int], Range]:
        table: dict[tuple[int, int], Range] | None = self.__dict__.get("_index")
        if table is None:
            table = {(entry.subgraph, entry.tensor): entry for entry in self.entries}
            object.__setattr__(self, "_index", table)
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_index"}


def _is_range(low: float, high: float) -> bool:
    return math.isfinite(low) and math.isfinite(high) and low <= high


def tensor_counts(model: Model) -> tuple[int, ...]:
    """Return how many tensors each subgraph has."""
    return tuple(len(graph.tensors) for graph in model.subgraphs)
