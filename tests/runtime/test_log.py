# SPDX-License-Identifier: Apache-2.0
"""LiteRT's log: off the terminal, nobody else's with it, and read where it explains a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from subprocess import CompletedProcess

import numpy as np
import pytest

from litesmith.errors import SessionError
from litesmith.model import Builder, Model, Quantization
from litesmith.runtime import Session
from litesmith.runtime._environment import litert_log
from litesmith.runtime._explain import explain

RunScript = Callable[..., "CompletedProcess[str]"]


def test_nothing_of_litert_and_everything_of_others_reaches_stderr(run_script: RunScript) -> None:
    done = run_script("""
        import ctypes, os, sys, threading
        from litesmith.errors import SessionError
        from litesmith.model import Builder
        from litesmith.runtime import Session, partitions
        from litesmith.runtime._selfcheck import TINY_MODEL

        libc = ctypes.CDLL(None)
        stderr = ctypes.c_void_p.in_dll(libc, "stderr")
        stop = threading.Event()
        written = 0
        def others():
            global written
            while not stop.is_set() or written < 300:
                libc.fputs(b"from C\\n", stderr)
                os.write(2, b"from a descriptor\\n")
                print("from Python", file=sys.stderr)
                written += 1
        thread = threading.Thread(target=others)
        thread.start()
        b = Builder()
        broken = b.build({"y": b.op("CUSTOM", b.input("x", (2,)), custom_code="MyOp", outputs=[((2,), "float32")])})
        for backend in ("compiled", "interpreter"):
            for _ in range(20):
                with Session(TINY_MODEL, backend=backend) as session:
                    session.run()
                    session.resize({"x": (4, 3)})
                    session.run()
                try:
                    Session(broken, backend=backend)
                except SessionError:
                    pass
        with Session(TINY_MODEL, profiling=True) as session:
            session.start_profile()
            session.run()
            session.stop_profile()
        partitions(TINY_MODEL)
        stop.set()
        thread.join()
        libc.fflush(None)
        print(written)
    """)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    written = int(done.stdout)
    for text in ("from C", "from a descriptor", "from Python"):
        assert lines.count(text) == written
    assert len(lines) == 3 * written


def test_the_reason_of_a_failed_compilation_is_in_the_message(add_model: Model) -> None:
    """This one LiteRT only ever writes to its log."""
    x = replace(add_model.main.tensors[0], dtype="int8", quantization=Quantization((0.5,) * 4, (0,) * 4, axis=7))
    model = add_model.with_main(replace(add_model.main, tensors=(x, *add_model.main.tensors[1:])))
    with pytest.raises(SessionError, match=r"quantized_dimension must be in range \[0, 2\). Was 7."):
        Session(model, verify=False, backend="compiled")


def test_the_log_of_a_compilation_is_kept(add_model: Model) -> None:
    if not litert_log().active:
        pytest.skip("on this system LiteRT's log cannot be told apart from that of others")
    with Session(add_model) as session:
        assert any("Flatbuffer model initialized" in line for line in session.compiled.log)
    with litert_log().lines() as lines:
        pass
    assert lines == []


def test_a_model_that_another_reader_takes_says_why_it_is_there() -> None:
    b = Builder()
    model = b.build({"y": b.op("NEG", b.input("x", (2,)))})
    state = replace(model.main.tensors[0], name="state", is_variable=True)
    model = model.with_main(replace(model.main, tensors=(*model.main.tensors, state)))
    with Session(model) as session:
        assert session.compiled.reason == "Variable tensors not yet supported."
        assert session(np.ones(2, np.float32))["y"].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([], ""),
        (["INFO: [a.cc:1] hello", "WARNING: [b.cc:2] hm"], ""),
        (["ERROR: [a.cc:1] Broken.", "ERROR: [b.cc:2] Broken."], "Broken."),
        (
            ["Encountered unresolved custom op: MyOp.", "See instructions: https://example.org"],
            (
                "Encountered unresolved custom op: MyOp. (LiteRT has no kernel for the custom operator 'MyOp'; register "
                "one with litesmith.custom_op('MyOp'), or on the command line with --custom-op FILE.py)"
            ),
        ),
    ],
)
def test_explain(said: list[str], reason: str) -> None:
    assert explain(said) == reason
