# SPDX-License-Identifier: Apache-2.0
"""A large file is mapped, not copied: reading and writing it takes at most 1.3 times its size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from litesmith.model import Builder, Model

MEASURE = """
import sys
from pathlib import Path

def resident(field):
    return 1024 * int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0])

from litesmith.model import Model
import litesmith.model._write
before = resident("VmRSS")
model = Model.load(sys.argv[1])
model.save(sys.argv[2])
print(resident("VmHWM") - before)
"""


def test_memory_of_load_and_write(tmp_path: Path) -> None:
    path, copy = tmp_path / "large.tflite", tmp_path / "copy.tflite"
    b = Builder()
    x = b.input("x", (1, 1024))
    for i in range(15):
        x = b.fully_connected(
            x, 1024 if i % 2 else 4096, weight=np.full((1024 if i % 2 else 4096, x.shape[1]), i, np.float32)
        )
    b.build({"y": x}).save(path)
    size = path.stat().st_size
    assert size > 200_000_000
    done = subprocess.run([sys.executable, "-c", MEASURE, path, copy], capture_output=True, text=True, check=True)

    assert int(done.stdout) <= 1.3 * size
    assert copy.read_bytes() == path.read_bytes()
    assert Model.load(copy).main.tensors[1].shape == (4096, 1024)
