# SPDX-License-Identifier: Apache-2.0
"""The script that makes the sample: what it trains is what it writes, and it refuses other data."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from litesmith import samples
from litesmith.runtime import Session

torch = pytest.importorskip("torch", reason="training needs PyTorch: pip install 'litesmith[train]'")
SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_samples.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    if not SCRIPT.exists():
        pytest.skip("the script lies in the repository, not in the package")
    spec = importlib.util.spec_from_file_location("make_samples", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_samples"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def few_images(script: ModuleType) -> Any:
    with np.load(samples.path("fashion-train.npz")) as arrays:
        return script.Images(arrays["x"][:192], arrays["y"][:192].astype(np.int64))


@pytest.fixture
def trained(script: ModuleType, few_images: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(script, "EPOCHS", 2)
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield script.train(few_images, threads=1)
    torch.set_num_threads(threads)  # both are settings of the process, which other tests share
    torch.use_deterministic_algorithms(deterministic)


def test_the_written_model_computes_what_was_trained(script: ModuleType, few_images: Any, trained: Any) -> None:
    x = script._as_input(few_images.pixels[:16])
    with torch.no_grad():
        expected = trained(x).numpy()
    with Session(script.to_model(trained)) as session:
        rows = [session.run(image=image.reshape(1, 28, 28, 1))["logits"].copy() for image in x.numpy()]

    np.testing.assert_allclose(np.concatenate(rows), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_training_again_gives_the_same_bytes(script: ModuleType, few_images: Any, trained: Any) -> None:
    again = script.train(few_images, threads=1)

    assert script.to_model(again).to_bytes() == script.to_model(trained).to_bytes()


def test_the_bundled_model_has_the_shape_of_the_script(script: ModuleType) -> None:
    def shape(model: Any) -> list[Any]:
        graph = model.main
        return [
            (op.kind, [(graph.tensors[t].name, graph.tensors[t].shape) for t in op.inputs]) for op in graph.operators
        ]

    assert shape(script.to_model(script.Network().eval())) == shape(samples.model())


def test_another_package_is_refused(script: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"the package is not fashion-mnist@1\.1\.0"):
        script.read_package(b"something else")
