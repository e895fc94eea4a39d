# SPDX-License-Identifier: Apache-2.0
"""The C API is only used where it has proved itself; elsewhere sessions run on the Interpreter, and say so once."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from litesmith.errors import SessionError
from litesmith.model import Model
from litesmith.runtime import LitesmithWarning, Session, _litert, _selfcheck, litert_version


@pytest.fixture
def unchecked() -> Iterator[None]:
    """As in a process that has not made a session yet; the real verdict is found again afterwards."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    _selfcheck.why_not_litert.cache_clear()
    _selfcheck._warn_once.cache_clear()


def _wrong_size(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(_litert.STRUCT_SIZES, _litert.Layout, 72)


def _missing_function(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(_litert._FUNCTIONS, "LiteRtDoesNotExist", [ctypes.c_void_p])
    patch.setattr(_litert, "load", lambda: _litert.LiteRt(_litert.package_folder() / "libLiteRt.so"))


def _missing_library(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_litert, "load", lambda: _litert.LiteRt(_litert.package_folder() / "libMissing.so"))


def _wrong_result(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_selfcheck, "TINY_MODEL", _selfcheck.TINY_MODEL.replace(np.float32(2).tobytes(), bytes(4)))


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "untested version": (lambda patch: patch.setattr(_litert, "TESTED_VERSIONS", ("0.0.1",)), "is not tested"),
    "wrong size": (_wrong_size, "the struct Layout has 68 bytes here instead of 72"),
    "missing function": (_missing_function, "LiteRtDoesNotExist"),
    "missing library": (_missing_library, "libMissing.so"),
    "wrong result": (_wrong_result, "a small model gives a wrong result"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wheel_that_fails_a_check_is_not_used(monkeypatch: pytest.MonkeyPatch, add_model: Model, fault: str) -> None:
    inject, reason = FAULTS[fault]
    inject(monkeypatch)
    with pytest.warns(LitesmithWarning, match=reason) as caught:
        session = Session(add_model)
    assert caught[0].filename == __file__
    with session:
        assert session.compiled.backend == "interpreter"
        assert reason in session.compiled.reason
        ones = np.ones((2, 3), np.float32)
        assert (session(ones, ones)["sum"] == 2).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Session(add_model).close()  # it was said once
    with pytest.raises(SessionError, match=f"profiling needs LiteRT's compiled-model API.*{reason}"):
        Session(add_model, profiling=True)
    with pytest.raises(SessionError, match=reason):
        Session(add_model, backend="compiled")


def test_this_wheel_passes() -> None:
    assert litert_version() in _litert.TESTED_VERSIONS
    assert _selfcheck.why_not_litert() is None


def test_the_small_model_is_what_it_is_said_to_be() -> None:
    model = Model.from_bytes(_selfcheck.TINY_MODEL)
    model.verify()
    assert len(_selfcheck.TINY_MODEL) < 1024
    assert [operator.kind for operator in model.main.operators] == ["ADD"]


def test_importing_runtime_loads_nothing_of_litert(run_script: Callable[..., object]) -> None:
    done = run_script("""
        import sys
        import litesmith.runtime
        print([name for name in sys.modules if name.startswith("ai_edge_litert")])
        print("libLiteRt" in open("/proc/self/maps").read())
    """)
    assert done.stdout.split() == ["[]", "False"]  # type: ignore[attr-defined]
