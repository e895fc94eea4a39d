# SPDX-License-Identifier: Apache-2.0
"""A C program can load the library: no C++ runtime, no symbol of Python, errors by its own function."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>

static void report(const char* message) { printf("error: %s\n", message); }

int main(int argc, char** argv) {
  void* library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return printf("%s\n", dlerror()), 1;
  void* (*create)(const char* const*, const char* const*, size_t, void (*)(const char*)) =
      dlsym(library, "tflite_plugin_create_delegate");
  void (*destroy)(void*) = dlsym(library, "tflite_plugin_destroy_delegate");
  const char* (*isa)(void*) = dlsym(library, "litesmith_delegate_isa");
  const char* keys[] = {"num_threads", "isa"};
  const char* values[] = {"2", "scalar"};
  void* delegate = create(keys, values, 2, report);
  printf("%s\n", isa(delegate));
  destroy(delegate);
  const char* wrong[] = {"speed"};
  return create(wrong, values, 1, report) == NULL ? 0 : 2;
}
"""


def test_a_c_program_loads_it(library: Path, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-o", program, source, "-ldl"], check=True)
    done = subprocess.run([program, library], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "scalar"
    assert "unknown option 'speed'" in done.stdout
