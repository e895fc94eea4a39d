# SPDX-License-Identifier: Apache-2.0
"""Many runs of a compiled model in one call of the native library, which needs no Python between them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_size_t, c_void_p
from typing import Any

from litesmith.runtime._arrays import Array


class _Stack(ctypes.Structure):
    """An array of the model and the same of all samples, one behind the other (native/src/run_each.cc)."""

    _fields_ = (("of_model", c_void_p), ("of_samples", c_void_p), ("bytes", c_size_t))


class _Runs(ctypes.Structure):
    """What the library needs to know (native/src/run_each.cc)."""

    _fields_ = (
        *((name, c_void_p) for name in ("run", "read_layouts", "compiled")),
        *((name, c_size_t) for name in ("signature", "num_inputs", "num_outputs")),
        *((name, c_void_p) for name in ("inputs", "outputs", "layouts", "expected_layouts")),
        *((name, c_size_t) for name in ("layout_bytes", "num_fed", "num_kept")),
        *((name, c_void_p) for name in ("fed", "kept")),
    )


class Runs:
    """Runs of one model from stacks of samples to stacks of outputs.

    Args:
        run: LiteRtRunCompiledModel and its arguments.
        layouts: LiteRtGetCompiledModelOutputTensorLayouts, where it writes, and what it must write.
        fed: pairs of an input array and the samples for it.
        kept: pairs of an output array and where its values go.
    """

    def __init__(
        self,
        run: tuple[Any, tuple[Any, ...]],
        layouts: tuple[Any, Any, bytes],
        fed: Sequence[tuple[Array, Array]],
        kept: Sequence[tuple[Array, Array]],
    ) -> None:
        from litesmith.runtime._native import library

        function, (compiled, signature, num_inputs, inputs, num_outputs, outputs) = run
        read, written, expected = layouts
        self._library = library()
        self._alive = inputs, outputs, written, fed, kept  # the structure holds bare addresses
        self._expected = ctypes.create_string_buffer(expected, len(expected))
        self._fed, self._kept = _stacks(fed), _stacks(kept)
        self._runs = _Runs(
            run=ctypes.cast(function, c_void_p),
            read_layouts=ctypes.cast(read, c_void_p),
            compiled=compiled,
            signature=signature,
            num_inputs=num_inputs,
            num_outputs=num_outputs,
            inputs=ctypes.addressof(inputs),
            outputs=ctypes.addressof(outputs),
            layouts=ctypes.addressof(written),
            expected_layouts=ctypes.addressof(self._expected),
            layout_bytes=len(expected),
            num_fed=len(fed),
            num_kept=len(kept),
            fed=ctypes.addressof(self._fed),
            kept=ctypes.addressof(self._kept),
        )

    def __call__(self, begin: int, end: int) -> tuple[int, int]:
        """Run samples [begin, end); return the first that failed and LiteRT's status, or ``end`` and 0.

        A status of 0 for a sample before ``end`` means that its outputs have another shape than those before.
        """
        status = c_int()
        done: int = self._library.litesmith_run_each(ctypes.byref(self._runs), begin, end, ctypes.byref(status))
        return done, status.value


def _stacks(pairs: Sequence[tuple[Array, Array]]) -> ctypes.Array[_Stack]:
    stacks = [_Stack(array.ctypes.data, stack.ctypes.data, array.nbytes) for array, stack in pairs]
    return (_Stack * max(1, len(stacks)))(*stacks)
