# SPDX-License-Identifier: Apache-2.0
"""Where a session's model comes from: a file that LiteRT maps, or bytes that stay in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litesmith.errors import ModelError, UsageError

if TYPE_CHECKING:
    from litesmith.model import Model

ModelLike: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Model"

_FLATBUFFER_ALIGNMENT = 16


@dataclass(frozen=True)
class ModelSource:
    """A path, or the content of a model; exactly one of the two is set."""

    path: Path | None = None
    content: bytes | None = None
    verified: bool = False
    name: str = ""  # of a content that was made from something with a name
    native: bool | None = None  # whether it has operators for Litesmith's delegate; None if nobody looked

    @classmethod
    def of(cls, model: ModelLike | ModelSource, *, verify: bool) -> ModelSource:
        """Return the source of `model`, verified first if asked (ModelError tells what is wrong)."""
        from litesmith.model import Model
        from litesmith.runtime._native import wants_native

        if isinstance(model, ModelSource):
            return model
        if isinstance(model, Model):
            if verify:
                model.verify()
            return cls(content=model.to_bytes(), verified=verify, native=wants_native(model))
        if isinstance(model, (bytes, bytearray, memoryview)):
            content = bytes(model)
            return cls(content=content, verified=verify, native=_checked(Model.from_bytes(content)) if verify else None)
        if isinstance(model, (str, os.PathLike)):
            path = Path(model)
            if not verify and not path.is_file():
                raise ModelError(f"{path} is not a file; give the path of a .tflite file")
            return cls(path=path, verified=verify, native=_checked(Model.load(path)) if verify else None)
        raise UsageError(f"a model is a path, bytes or a Model, not {type(model).__name__}")

    def __str__(self) -> str:
        if self.name:
            return self.name
        return str(self.path) if self.path is not None else f"the model ({len(self.content or b'')} bytes)"

    def read(self) -> Model:
        """Return the model as a value."""
        from litesmith.model import Model

        return Model.load(self.path) if self.path is not None else Model.from_bytes(self.content or b"")

    def keeps_state(self) -> bool:
        """Tell whether the model has resource variables, which no reset sets back."""
        return any(operator.kind == "VAR_HANDLE" for _, _, operator in self.read().operators())

    def aligned_content(self) -> NDArray[np.uint8]:
        """Return the content as an array whose address a flatbuffer may have; keep it while LiteRT uses it."""
        array = np.frombuffer(self.content or b"", np.uint8)
        if array.ctypes.data % _FLATBUFFER_ALIGNMENT == 0:
            return array
        memory = np.empty(array.size + _FLATBUFFER_ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _FLATBUFFER_ALIGNMENT
        copy = memory[start : start + array.size]
        copy[:] = array
        return copy


def _checked(model: Model) -> bool:
    """Verify a model while it is at hand, and return whether it has operators for Litesmith's delegate."""
    from litesmith.runtime._native import wants_native

    model.verify()
    return wants_native(model)
