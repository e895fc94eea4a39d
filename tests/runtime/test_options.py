# SPDX-License-Identifier: Apache-2.0
"""The seam for what comes later: custom operators, options and accelerators reach LiteRT through CompileOptions."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_void_p
from dataclasses import replace

import numpy as np
import pytest

from litesmith.errors import SessionError
from litesmith.model import Builder, Model
from litesmith.runtime import Session, _litert
from litesmith.runtime._options import CompileOptions, CustomOp

_INIT = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
_LAYOUTS = CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(_litert.Layout), c_size_t, POINTER(_litert.Layout))
_RUN = CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_void_p), c_size_t, POINTER(c_void_p))
_DESTROY = CFUNCTYPE(c_int, c_void_p)


class _Kernel(ctypes.Structure):
    _fields_ = [("init", _INIT), ("layouts", _LAYOUTS), ("run", _RUN), ("destroy", _DESTROY)]


def _same_layout(_data: int, _n: int, inputs: object, _m: int, outputs: object) -> int:
    outputs[0] = inputs[0]  # type: ignore[index]
    return 0


def _fail(_data: int, _n: int, _inputs: object, _m: int, _outputs: object) -> int:
    return 3


@pytest.fixture
def custom_model() -> Model:
    b = Builder()
    x = b.input("x", (2,))
    return b.build({"y": b.op("CUSTOM", x, custom_code="Double", outputs=[((2,), "float32")])})


def test_a_custom_operator_has_the_kernel_it_is_given(custom_model: Model) -> None:
    calls = []

    def run(_data: int, _n: int, inputs: object, _m: int, outputs: object) -> int:
        calls.append(1)
        memory = []
        library = _litert.load().library
        for buffer, mode in ((inputs[0], 0), (outputs[0], 1)):  # type: ignore[index]
            address = c_void_p()
            assert library.LiteRtLockTensorBuffer(c_void_p(buffer), ctypes.byref(address), mode) == 0
            memory.append((ctypes.c_float * 2).from_address(address.value or 0))
        for k in range(2):
            memory[1][k] = 2 * memory[0][k]
        for buffer in (inputs[0], outputs[0]):  # type: ignore[index]
            library.LiteRtUnlockTensorBuffer(c_void_p(buffer))
        return 0

    kernel = _Kernel(_INIT(lambda *_: 0), _LAYOUTS(_same_layout), _RUN(run), _DESTROY(lambda _: 0))
    options = CompileOptions(custom_ops=(CustomOp("Double", 1, kernel),))
    with Session._with_options(custom_model, options) as session:
        assert session(np.array([1, 4], np.float32))["y"].tolist() == [2, 8]
        assert calls == [1]
        assert session.compiled.backend == "compiled"


def test_a_custom_operator_that_fails(custom_model: Model) -> None:
    """LiteRT does not look at what the kernel returns, but that nothing was written does not go unseen."""
    kernel = _Kernel(_INIT(lambda *_: 0), _LAYOUTS(_same_layout), _RUN(_fail), _DESTROY(lambda _: 0))
    options = CompileOptions(custom_ops=(CustomOp("Double", 1, kernel),))
    with Session._with_options(custom_model, options) as session, pytest.raises(SessionError, match="not written"):
        session(np.array([1, 4], np.float32))


def test_options_of_the_environment_make_another_one(add_model: Model) -> None:
    registered = []
    options = CompileOptions(
        opaque=(("xnnpack_extra", "unused = 1\n"),), accelerators=(lambda handle: registered.append(handle.value),)
    )
    for _ in range(2):
        with Session._with_options(add_model, options) as session:
            session.run()
    assert len(registered) == 1, "an environment is made once, and its accelerators registered once"
    assert registered[0]


def test_what_only_litert_can_do_does_not_fall_back(where_model: Model) -> None:
    options = replace(CompileOptions(), opaque=(("some_vendor", "level = 1\n"),))
    with (
        Session._with_options(where_model, options) as session,
        pytest.raises(SessionError, match="this needs LiteRT's compiled-model API"),
    ):
        session.run()
