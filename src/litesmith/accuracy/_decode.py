# SPDX-License-Identifier: Apache-2.0
"""From the outputs of one sample to what its metric scores: text, or boxes.

``decode`` is "module:function" (or the function): it gets the sample's outputs, an array or a dict of them by name, and
returns text for wer, cer, exact-match and f1, or boxes for map (rows of ymin, xmin, ymax, xmax, score, class). For
text there is also "ctc:FILE": the best path of frame-wise scores, with the symbols of the file, one a line; the blank
is the symbol "<blank>", or the class after the last line (Graves et al. 2006).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litesmith.data import import_callable
from litesmith.errors import UsageError

Array = NDArray[Any]
Decode: TypeAlias = "str | Callable[[Any], Any]"
BLANK = "<blank>"


def decode_one(decode: Decode, outputs: Mapping[str, Array]) -> Any:
    """Return what the user's function, or the best path, makes of one sample's outputs."""
    function = _resolve(decode) if isinstance(decode, str) else decode
    return function(next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs))


def check_decode(decode: Decode) -> None:
    """Refuse a decoder that cannot be found."""
    if isinstance(decode, str):
        _resolve(decode)


@functools.cache
def _resolve(decode: str) -> Callable[[Any], Any]:
    kind, _, path = decode.partition(":")
    if kind == "ctc":
        return functools.partial(best_path, symbols=_symbols(Path(path)))
    return import_callable(decode)


def best_path(scores: Array, *, symbols: tuple[str, ...]) -> str:
    """Return the text of the best class of each frame, repeats merged and blanks left out.

    Example:
        >>> frames = np.eye(3)[[0, 0, 2, 1, 1, 2, 1]]
        >>> best_path(frames, symbols=("a", "b"))
        'abb'
    """
    frames = scores.reshape(-1, scores.shape[-1])
    if frames.shape[1] not in (len(symbols), len(symbols) + 1):
        raise UsageError(
            f"ctc: the model gives {frames.shape[1]} scores a frame, and there are {len(symbols)} symbols; give one a "
            f"line for each class, the blank as {BLANK} or left out at the end"
        )
    blank = symbols.index(BLANK) if BLANK in symbols else frames.shape[1] - 1
    best = frames.argmax(axis=1)
    starts = best[np.concatenate([[True], best[1:] != best[:-1]])]
    return "".join(symbols[c] for c in starts.tolist() if c != blank)


def _symbols(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"ctc:{path}: the symbols cannot be read: {error}") from error
    return tuple(lines[:-1] if lines and not lines[-1] else lines)  # a line may be a space
