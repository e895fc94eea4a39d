# SPDX-License-Identifier: Apache-2.0
"""What LiteRT itself can be asked about a target, beside the rules.

XNNPACK is in the wheel: compiling the model tells exactly what it takes. The wheel also has a checker for the GPU
delegate; that of LiteRT 2.3.0 calls every model compatible, since the loop that would look at the operators is gone
(tflite/python/analyzer_wrapper/model_analyzer.cc). So it is first asked about a model that no GPU runs, and believed only
when it says so.
"""

from __future__ import annotations

import functools
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from litesmith.errors import SessionError
from litesmith.model import Builder, Model
from litesmith.runtime import partitions
from litesmith.runtime._source import ModelSource

_GPU_NODES = re.compile(r"Subgraph#0 has GPU delegate compatibility issues at nodes ([\d, ]+)")


def left_by_xnnpack(model: Model) -> tuple[set[int], str] | str:
    """Return the operators that XNNPACK leaves and how many pieces it makes; the reason where LiteRT cannot tell."""
    stock = replace(
        ModelSource.of(model, verify=False), native=False
    )  # XNNPACK by itself, without Litesmith's delegate
    try:
        found = partitions(stock)
    except SessionError as error:
        return str(error)
    pieces = [piece for piece in found if piece.delegate is not None]
    left = {index for piece in found if piece.delegate is None for index in piece.operators}
    return left, f"LiteRT compiled it: {len(pieces)} {'piece' if len(pieces) == 1 else 'pieces'} for XNNPACK"


def left_by_gpu_checker(model: Model) -> tuple[set[int], str] | str:
    """Return the operators that the wheel's GPU checker refuses; the reason where it cannot be believed."""
    if not _gpu_checker_works():
        return "LiteRT's own GPU checker calls every model compatible, so it was not asked"
    return _ask_gpu_checker(model), "LiteRT's own GPU checker agrees"


@functools.cache
def _gpu_checker_works() -> bool:
    b = Builder()
    x = b.input("x", (1, 4))
    return bool(_ask_gpu_checker(b.build({"y": b.op("CUSTOM", x, outputs=[((1, 4), "float32")], custom_code="None")})))


def _ask_gpu_checker(model: Model) -> set[int]:
    try:
        from ai_edge_litert import _pywrap_analyzer_wrapper
    except ImportError:
        return set()
    with tempfile.TemporaryDirectory(prefix="litesmith-") as folder:
        path = Path(folder) / "model.tflite"
        model.save(path)
        text = _pywrap_analyzer_wrapper.ModelAnalyzer(str(path), True, True)
    found = _GPU_NODES.search(text)
    return {int(word) for word in found[1].split(",") if word.strip()} if found else set()
