# SPDX-License-Identifier: Apache-2.0
"""Code for an accelerator behind the tables of a file goes with the model, wherever it comes to lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import ASSETS

from litesmith.errors import ModelError
from litesmith.model import Model, Operator, Subgraph, Tensor, modernize
from litesmith.model._flexbuffer import decode_flexbuffer, with_integer

NAMES = (
    "119a46d4_simple_model_npu_google_tensor_precompiled",
    "31c37681_simple_add_op.sm8750",
    "6f1ca4e2_precompiled_mediatek_model",
    "713f5a16_simple_model_qualcomm_sm8650_precompiled",
    "8ad636fd_simple_model_npu_mediatek_mt6989_precompiled",
)
FILES = [ASSETS / "corpus" / f"{name}.tflite" for name in NAMES] if ASSETS.is_dir() else []


def _places(data: bytes) -> list[tuple[int, int]]:
    """Return offset and size of the code, as the bytes of a file have them."""
    places = []
    at = data.find(b"<npu_byte_code>")
    if at >= 0:
        offset, size = (int(data[at + 15 + 11 * i : at + 26 + 11 * i].rstrip(b"\0")) for i in range(2))
        places.append((offset, size))
    mark = data.find(b"bytecode_size\0")
    if mark >= 0:  # the first key of the options; where they end is found by trying
        for stop in range(mark + 20, min(mark + 400, len(data))):
            try:
                options = decode_flexbuffer(data[mark:stop])
            except ModelError:
                continue
            if isinstance(options, dict) and "bytecode_offset" in options:
                places.append((options["bytecode_offset"], options["bytecode_size"]))
                break
    return places


@pytest.mark.skipif(not FILES, reason=f"no folder of real models at {ASSETS}; set LITESMITH_ASSETS to it")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem[:20])
def test_the_code_is_where_the_file_says(path: Path) -> None:
    original = path.read_bytes()
    ((offset, size),) = _places(original)
    code = original[offset : offset + size]
    model = Model.from_bytes(original)
    grown = modernize(replace(model, description="longer than it was before, so that everything moves " * 9))

    assert model.appendix is not None
    assert bytes(model.appendix.data) == code
    for written in (model.to_bytes(), grown.to_bytes()):
        ((place, length),) = _places(written)
        assert written[place : place + length] == code
        assert place % 16 == 0
    assert Model.from_bytes(model.to_bytes()) == model
    assert Model.from_bytes(grown.to_bytes()) == grown
    with_files = replace(model, associated_files=(("a.txt", b"text"),))
    assert Model.from_bytes(with_files.to_bytes()) == with_files


@pytest.mark.skipif(not FILES, reason=f"no folder of real models at {ASSETS}; set LITESMITH_ASSETS to it")
def test_code_outside_the_file_is_refused() -> None:
    data = FILES[0].read_bytes()
    with pytest.raises(ModelError, match="code for an accelerator lies at bytes .* outside the file"):
        Model.from_bytes(data[:-1])


def test_an_operator_without_code_is_left_alone() -> None:
    base = Operator("CUSTOM", (0,), (1,), custom_code="DISPATCH_OP", custom_options=b"\0\0\1\0\0$\1")
    graph = Subgraph("main", (Tensor("x", (1,)), Tensor("y", (1,))), (base,), (0,), (1,))
    model = Model((graph,))

    assert Model.from_bytes(model.to_bytes()) == model
    assert model.appendix is None
    with pytest.raises(ModelError):
        with_integer(b"\0\0\1\0\0$\1", "bytecode_offset", 3)
