# SPDX-License-Identifier: Apache-2.0
"""One connection to a device: the system's own `ssh`, with the user's configuration, agent and jump hosts.

Everything goes over one channel, the worker's source first, so that nothing has to be installed to begin with. Host keys
are always checked and never asked about: what `ssh` would ask a person, it refuses here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from litesmith.devices import _worker
from litesmith.devices._device import Device
from litesmith.errors import DeviceError

CONNECT_S = 15
GREETING_S = 30
ANSWER_S = 20
NOISE_LIMIT = 1 << 16  # what a login may print before the worker greets
_BOOT = (
    "import os\nsource = b''\nwhile len(source) < {size}:\n"
    "    source += os.read(0, {size} - len(source)) or os._exit(3)\n"
    "names = {{'__name__': 'litesmith_worker'}}\nexec(compile(source, 'litesmith worker', 'exec'), names)\n"
    "names['main']({silence_s})"
)


class LostConnectionError(DeviceError):
    """The connection broke, or could not be made; another try may work."""


class Connection:
    """An open connection: ``here`` is what the device said of itself."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.sending = False  # raw bytes are under way: nothing else can be said until they are
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115  (closed in close)
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        source = Path(_worker.__file__).read_bytes()
        boot = _BOOT.format(size=len(source), silence_s=device.grace_s)
        try:
            self._process = subprocess.Popen(  # noqa: S603
                _command(device, boot), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._noise, bufsize=0
            )
        except FileNotFoundError as error:
            self._noise.close()
            raise DeviceError(f"{error.filename!r} is not installed here; device {device.name!r} needs it") from None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._write(source)
            self.send(folder=device.folder, lock=device.lock)
            self.here = self.receive(GREETING_S)
        except BaseException:
            self.close()
            raise

    def send(self, **message: Any) -> None:
        """Send one message."""
        self._write(json.dumps(message).encode() + b"\n")

    def send_bytes(self, data: bytes | memoryview, stop: threading.Event) -> None:
        """Send raw bytes with their digest; when ``stop`` is set it ends as by Ctrl-C, and nothing else can be said."""
        self.sending = True
        self.send(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        view = memoryview(data)
        for start in range(0, len(view), _worker.CHUNK):
            if stop.is_set():
                raise KeyboardInterrupt
            self._write(view[start : start + _worker.CHUNK])
        self.sending = False

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message; a refusal and a lost connection are raised."""
        message = self.poll(seconds)
        if message is None:
            raise LostConnectionError(f"device {self.device.name!r} did not answer within {seconds:.0f} s")
        return message

    def poll(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message, None when there is none in time."""
        try:
            message = self._messages.get(timeout=seconds)
        except queue.Empty:
            return None
        if message is None:
            raise self._why_lost()
        if message["event"] == "refused":
            raise self._refusal(message)
        return message

    def close(self) -> None:
        """End the connection; what runs on the device notices."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=2)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._noise.close()

    def _write(self, data: bytes | memoryview) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except (OSError, ValueError):
            raise self._why_lost() from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        stream: IO[bytes] = self._process.stdout
        pending = b""
        greeted = False
        with contextlib.suppress(OSError, ValueError):
            while part := stream.read(_worker.CHUNK):
                pending += part
                if not greeted:
                    greeted = _worker.MAGIC in pending
                    pending = pending.partition(_worker.MAGIC)[2] if greeted else pending[-NOISE_LIMIT:]
                while greeted and b"\n" in pending:
                    line, _, pending = pending.partition(b"\n")
                    self._messages.put(json.loads(line))
        self._messages.put(None)

    def _refusal(self, message: dict[str, Any]) -> DeviceError:
        return DeviceError(f"device {self.device.name!r}: {message['message']}")

    def _why_lost(self) -> DeviceError:
        """Say why the connection ended, from the exit code of `ssh` and what it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._reader.join(timeout=2)
        with contextlib.suppress(queue.Empty):  # it may have refused while we were still writing to it
            while True:
                message = self._messages.get_nowait()
                if message is not None and message["event"] == "refused":
                    return self._refusal(message)
        self._noise.seek(0)
        printed = self._noise.read().decode("utf-8", "replace").strip()
        return _explained(self.device, self._process.returncode, printed, greeted=hasattr(self, "here"))


@contextlib.contextmanager
def connect(device: Device) -> Iterator[Connection]:
    """Connect to a device for the time of the block."""
    connection = Connection(device)
    try:
        yield connection
    finally:
        connection.close()


def _command(device: Device, boot: str) -> list[str]:
    transport, user, host, port = device.address
    python = [*device.python_command, "-c", boot]
    if transport == "local":
        return python
    alive_s = max(1, round(device.grace_s / 12))
    options = {
        "BatchMode": "yes",
        "ControlMaster": "no",  # one that is open is used, none is left behind
        "ConnectTimeout": min(CONNECT_S, round(device.grace_s)),
        "ServerAliveCountMax": 3,
        "ServerAliveInterval": alive_s,
        "StrictHostKeyChecking": "yes",
    }
    command = ["ssh", "-T", "-x", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    command += [] if device.ssh_config is None else ["-F", device.ssh_config]
    command += [] if user is None else ["-l", user]
    command += [] if port is None else ["-p", str(port)]
    return [*command, "--", host, "exec " + shlex.join(python)]


_SSH_FAILED = 255
_NO_SUCH_COMMAND = (126, 127)


def _explained(device: Device, code: int | None, printed: str, *, greeted: bool) -> DeviceError:
    name, last = device.name, printed.splitlines()[-1] if printed else "it said nothing"
    host = device.address[2]
    if "HOST IDENTIFICATION HAS CHANGED" in printed:
        return DeviceError(
            f"device {name!r} does not have the host key it had before, so nothing was sent to it. If it was set up anew, "
            f"remove the old key with `ssh-keygen -R {host}` and connect once by hand; otherwise someone may be in between"
        )
    if "Host key verification failed" in printed or "No matching host key" in printed:
        return DeviceError(
            f"the host key of device {name!r} is not known here; run `ssh {host}` once and compare its fingerprint"
        )
    if "Permission denied" in printed and code == _SSH_FAILED:
        return DeviceError(
            f"device {name!r} does not accept the keys of this machine ({last}); "
            f"`ssh {host}` must work without a password: use ssh-copy-id or an agent"
        )
    if code in _NO_SUCH_COMMAND and not greeted:
        return DeviceError(
            f"there is no {shlex.join(device.python_command)!r} on device {name!r} ({last}); "
            "install Python 3.10 or newer there, or name it with `python = …` in the devices file"
        )
    if "SyntaxError" in last and not greeted:
        return DeviceError(
            f"the Python of device {name!r} is too old ({last}); install Python 3.10 or newer there, "
            "or name it with `python = …` in the devices file"
        )
    if greeted:
        return LostConnectionError(f"the connection to device {name!r} was lost ({last})")
    if code == _SSH_FAILED or code is None or code < 0:
        return LostConnectionError(f"device {name!r} cannot be reached: {last}")
    return DeviceError(f"the worker did not start on device {name!r} (exit code {code}): {last}")
