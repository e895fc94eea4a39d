# SPDX-License-Identifier: Apache-2.0
"""Android over adb: LiteRT's own `benchmark_model`, pushed with the model, run, read and removed again.

The transport and the parser are tested against recorded output; it has not been run on a phone.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import secrets
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from litesmith.devices._benchmark_model import ToolOutput, parse
from litesmith.devices._device import Device
from litesmith.errors import DeviceError, UsageError
from litesmith.result import Result

ADB = "adb"
SCRATCH = "/data/local/tmp"
ANSWER_S = 60
_XNNPACK = {"delegate": "true", "builtin": "false"}
_PROPERTIES = {
    "model": "ro.product.model",
    "chip": "ro.soc.model",
    "architecture": "ro.product.cpu.abi",
    "android": "ro.build.version.release",
}


@dataclass(frozen=True)
class AndroidRun:
    """One model with one setting."""

    model: str
    threads: int
    kernels: str
    output: ToolOutput


@dataclass(frozen=True)
class AndroidBench(Result, kind="android-bench", schema=1):
    """What `benchmark_model` said on an Android device; ``phone`` is what the device says of itself."""

    serial: str
    phone: dict[str, str]
    runs: tuple[AndroidRun, ...]


def bench_android(
    device: Device,
    models: Sequence[tuple[Path, str]],
    *,
    threads: Sequence[int] = (1,),
    kernels: Sequence[str] = ("delegate",),
    runs: int | None = None,
    seconds: float = 3.0,
    say: Callable[[str], None] | None = None,
) -> AndroidBench:
    """Run models, each with the name to show, on an Android device."""
    binary = _binary(device)
    unknown = [kind for kind in kernels if kind not in _XNNPACK]
    if unknown:
        raise UsageError(f"benchmark_model has no {unknown[0]!r} kernels; it has: {', '.join(_XNNPACK)}")
    phone = Phone(device)
    with _turn(device, say), phone.folder() as folder:
        properties = {name: phone.shell("getprop", key).strip() for name, key in _PROPERTIES.items()}
        tool = folder / "benchmark_model"
        phone.push(binary, tool)
        phone.shell("chmod", "755", str(tool))
        found = []
        for index, (path, shown) in enumerate(models):
            remote = folder / f"{index}.tflite"
            phone.push(path, remote)
            for count, kind in [(t, k) for t in threads for k in kernels]:
                flags = {"graph": remote, "num_threads": count, "use_xnnpack": _XNNPACK[kind], "min_secs": seconds}
                flags |= {} if runs is None else {"num_runs": runs, "min_secs": 0}
                words = [str(tool), *(f"--{name}={value}" for name, value in flags.items())]
                text = phone.shell(*words, seconds=len(words) * ANSWER_S + 10 * seconds, check=False)
                found.append(AndroidRun(shown, count, kind, parse(text)))
    return AndroidBench(phone.serial, properties, tuple(found))


def _binary(device: Device) -> Path:
    if device.benchmark_model is None:
        raise UsageError(
            f"device {device.name!r} needs LiteRT's benchmark_model, built for it: say where it is with "
            "`benchmark_model = …` in the devices file; https://ai.google.dev/edge/litert/models/measurement has builds"
        )
    path = Path(device.benchmark_model)
    if not path.is_file():
        raise UsageError(f"device {device.name!r}: there is no benchmark_model at {path}")
    return path


class Phone:
    """One device of adb."""

    def __init__(self, device: Device) -> None:
        self.name, self.serial = device.name, device.address[2]

    def shell(self, *words: str, seconds: float = ANSWER_S, check: bool = True) -> str:
        """Run a command on the device and return what it printed."""
        return self._adb("shell", shlex.join(words), seconds=seconds, check=check)

    def push(self, path: Path, target: PurePosixPath) -> None:
        """Copy a file there."""
        self._adb("push", str(path), str(target), seconds=10 * ANSWER_S)

    @contextlib.contextmanager
    def folder(self) -> Iterator[PurePosixPath]:
        """Make a folder there for the time of the block."""
        path = PurePosixPath(SCRATCH) / f"litesmith-{secrets.token_hex(6)}"
        self.shell("mkdir", str(path))
        try:
            yield path
        finally:
            self.shell("rm", "-rf", str(path))

    def _adb(self, *words: str, seconds: float, check: bool = True) -> str:
        command = [ADB, *(["-s", self.serial] if self.serial else []), *words]
        try:
            done = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
            )
        except FileNotFoundError:
            raise DeviceError("adb is not installed here; it is in Android's platform-tools") from None
        except subprocess.TimeoutExpired:
            raise DeviceError(f"device {self.name!r} did not answer adb {words[0]} within {seconds:.0f} s") from None
        text = done.stdout + done.stderr
        if "error: device" in text or "no devices/emulators found" in text or (check and done.returncode):
            last = text.strip().splitlines()[-1] if text.strip() else f"exit code {done.returncode}"
            raise DeviceError(f"device {self.name!r}: adb {words[0]} failed: {last}")
        return text


@contextlib.contextmanager
def _turn(device: Device, say: Callable[[str], None] | None) -> Iterator[None]:
    """Hold the device: whoever uses it over adb from this machine takes turns."""
    name = re.sub(r"\W", "_", device.address[2]) or "only"
    with (Path(tempfile.gettempdir()) / f"litesmith-adb-{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if say is not None:
                say(f"{device.name} is busy; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
