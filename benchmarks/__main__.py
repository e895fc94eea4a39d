# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks [NAME…]`: run all benchmarks, or those named, one after the other, each in its own process."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path


def main() -> int:
    every = sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_"))
    chosen = sys.argv[1:] or every
    if unknown := set(chosen) - set(every):
        print(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(every)}", file=sys.stderr)
        return 2
    failed = []
    for name in chosen:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
