# SPDX-License-Identifier: Apache-2.0
"""`litesmith run`: one run, on random or given inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.cli.conftest import Command

from litesmith.runtime import Run


def test_random_inputs_follow_the_seed(litesmith: Command, tiny: Path) -> None:
    first, second, other = (Run.from_json(litesmith("run", tiny, "--json", "--seed", s).stdout) for s in (1, 1, 2))

    assert first.outputs == second.outputs
    assert first.outputs != other.outputs
    assert first.outputs[0].shape == (1, 5)


def test_given_inputs_and_saved_outputs(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 16, 16, 3), np.float32))
    done = litesmith("run", tiny, "--inputs", "x.npy", "--save", "y.npz")

    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "y.npz")["logits"].shape == (1, 5)
    assert "logits" in done.stdout


def test_inputs_that_do_not_fit(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "double.npy", np.ones((1, 16, 16, 3)))
    np.savez(tmp_path / "two.npz", a=np.ones(3), b=np.ones(3))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    for file, message in {
        "double.npy": "float32",
        "two.npz": "image",
        "broken.npy": "broken.npy",
        "no.npy": "no file",
    }.items():
        done = litesmith("run", tiny, "--inputs", file)
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_unknown_kernels_are_wrong_use(litesmith: Command, tiny: Path) -> None:
    done = litesmith("run", tiny, "--kernels", "magic")

    assert done.returncode == 2
    assert "magic" in done.stderr
