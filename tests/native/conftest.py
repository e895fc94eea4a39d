# SPDX-License-Identifier: Apache-2.0
"""Build the native library once per test session and give tests the two ways to run a model: stock and delegated."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
REPOSITORY = Path(__file__).resolve().parents[2]


def build_native(name: str = "host", *options: str, target: str = "all") -> Path:
    """Configure and build into a folder that later sessions reuse; returns the folder of the results."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    checkout = hashlib.blake2b(str(REPOSITORY).encode(), digest_size=4).hexdigest()  # CMake remembers its source
    folder = Path(tempfile.gettempdir()) / f"litesmith-native-{os.getuid()}-{checkout}-{name}"
    folder.mkdir(exist_ok=True)
    configure = ["cmake", "-S", str(REPOSITORY), "-B", str(folder), "-DLITESMITH_BUILD_TESTS=ON", *options]
    with (folder / "lock").open("w") as lock:  # parallel test workers build once
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (configure, ["cmake", "--build", str(folder), "-j", "2", "--target", target]):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder / "native"


@pytest.fixture(scope="session")
def library() -> Path:
    """The path of liblitesmith_delegate.so: $LITESMITH_DELEGATE, or built from this checkout."""
    given = os.environ.get("LITESMITH_DELEGATE")
    return Path(given) if given else build_native() / "liblitesmith_delegate.so"


@dataclass
class Run:
    """A model after one invocation."""

    interpreter: Any
    delegate: Any
    library: Path | None

    def outputs(self) -> list[Array]:
        return [self.interpreter.get_tensor(d["index"]) for d in self.interpreter.get_output_details()]

    def decisions(self) -> list[dict[str, Any]]:
        """What the delegate took and why it left the rest."""
        ask = ctypes.CDLL(str(self.library)).litesmith_delegate_decisions
        ask.restype, ask.argtypes = ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        pointer = self.delegate._get_native_delegate_pointer()
        buffer = ctypes.create_string_buffer(ask(pointer, None, 0) + 1)
        ask(pointer, buffer, len(buffer))
        return list(json.loads(buffer.value))

    def taken(self) -> list[str]:
        return [d["op"] for d in self.decisions() if d["taken"]]


Runner = Callable[..., Run]


def make_interpreter(model: bytes, delegate: Any = None, *, preserve: bool = False, threads: int = 1) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    options: dict[str, Any] = {"experimental_preserve_all_tensors": preserve, "num_threads": threads}
    if delegate is None:
        options["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    else:
        options["experimental_delegates"] = [delegate]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the interpreter warns that preserving tensors costs memory
        return Interpreter(model_content=model, **options)


def feed(interpreter: Any, seed: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    for detail in interpreter.get_input_details():
        values = random.standard_normal(detail["shape"]) * spread
        if detail["dtype"] == np.int16:
            values = np.clip(np.rint(values * 9000), -32768, 32767)
        interpreter.set_tensor(detail["index"], values.astype(detail["dtype"]))


@pytest.fixture
def stock() -> Runner:
    """Run a model on the stock kernels, without any delegate."""

    def run(model: bytes, *, seed: int = 0, spread: float = 1.0, preserve: bool = False) -> Run:
        interpreter = make_interpreter(model, preserve=preserve)
        interpreter.allocate_tensors()
        feed(interpreter, seed, spread)
        interpreter.invoke()
        return Run(interpreter, None, None)

    return run


@pytest.fixture
def delegated(library: Path) -> Runner:
    """Run a model with the delegate."""
    from ai_edge_litert.interpreter import load_delegate

    def run(
        model: bytes, *, seed: int = 0, spread: float = 1.0, preserve: bool = False, threads: int = 1, **options: Any
    ) -> Run:
        delegate = load_delegate(str(library), {"num_threads": threads, **options})
        interpreter = make_interpreter(model, delegate, preserve=preserve, threads=threads)
        interpreter.allocate_tensors()
        feed(interpreter, seed, spread)
        interpreter.invoke()
        return Run(interpreter, delegate, library)

    return run
