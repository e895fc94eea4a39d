# SPDX-License-Identifier: Apache-2.0
"""What the tests of the zoo share: inputs for any of its models, and LiteRT to run them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from litesmith.model import Model

Array = np.ndarray[Any, Any]


class LiteRT:
    """Runs models on the stock interpreter."""

    @staticmethod
    def sample(model: Model, seed: int) -> dict[str, Array]:
        """Return normal noise for real inputs, and for MobileBERT random words without padding."""
        random = np.random.default_rng(seed)
        inputs: dict[str, Array] = {}
        for name, index in model.signatures[0].inputs:
            tensor = model.main.tensors[index]
            if tensor.dtype == "float32":
                inputs[name] = random.standard_normal(tensor.shape, np.float32)
            else:
                low, high = {"input_ids": (0, 30000), "segment_ids": (0, 2), "input_mask": (1, 2)}[name]
                inputs[name] = random.integers(low, high, tensor.shape).astype(np.int32)
        return inputs

    @staticmethod
    def interpreter(data: bytes, *, keep: bool = False) -> Any:
        """Return an interpreter that is ready to run, with ``keep`` one that shows all activations."""
        from ai_edge_litert.interpreter import Interpreter

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that keeping all activations takes memory
            interpreter = Interpreter(model_content=data, experimental_preserve_all_tensors=keep, num_threads=2)
        interpreter.allocate_tensors()
        return interpreter

    def run(self, model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name."""
        outputs: dict[str, Array] = self.interpreter(model.to_bytes()).get_signature_runner()(**inputs)
        return outputs

    def activations(self, model: Model, *inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Return the real values that the operators compute, by tensor name, for each set of inputs."""
        interpreter = self.interpreter(model.to_bytes(), keep=True)
        runner = interpreter.get_signature_runner()
        real = {
            i: t.name
            for op in model.main.operators
            for i in op.outputs
            if (t := model.main.tensors[i]).dtype == "float32"
        }
        found = []
        for values in inputs:
            runner(**values)
            found.append({name: interpreter.get_tensor(i).copy() for i, name in real.items()})
        return found


@pytest.fixture(scope="session")
def litert() -> LiteRT:
    """The stock interpreter."""
    return LiteRT()
