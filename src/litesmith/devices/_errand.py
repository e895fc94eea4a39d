# SPDX-License-Identifier: Apache-2.0
"""One job on one device, over as many connections as it takes."""

from __future__ import annotations

import contextlib
import getpass
import math
import os
import platform
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from litesmith import errors
from litesmith.devices import _parcel
from litesmith.devices._connection import ANSWER_S, Connection, LostConnectionError, connect
from litesmith.devices._device import Device
from litesmith.errors import DeviceError, LitesmithError
from litesmith.runtime import LitesmithWarning

_JOB_FOLDER = r"(?:[^\s'\"]*/jobs/[0-9a-f]{16}/)?"
TRIES = 20  # connections in a row that broke before the grace time was over
Say = Callable[[str], None]


class Errand:
    """What is to be done: the call, the files it needs by their names on the device, and whom to tell."""

    def __init__(
        self, device: Device, call: dict[str, Any], files: dict[str, Path], say: Say, stop: threading.Event
    ) -> None:
        self.device, self.call, self.files, self.say, self.stop = device, call, files, say, stop
        self.name = secrets.token_hex(8)
        self.seen = 0
        self.reached = False

    def result(self) -> dict[str, Any]:
        """Return the JSON of the result."""
        give_up, connected, tries = math.inf, 0.0, 0
        while True:
            try:
                with connect(self.device) as connection:
                    self.reached, give_up, connected = True, math.inf, time.monotonic()
                    return self._converse(connection)
            except LostConnectionError as error:
                if not self.reached:
                    raise
                lasted = time.monotonic() - connected if give_up == math.inf else 0.0
                tries = 1 if lasted > self.device.grace_s else tries + 1
                if give_up == math.inf and tries > TRIES:
                    raise DeviceError(f"{error}, {TRIES} times in a row") from error
                give_up = min(give_up, time.monotonic() + self.device.grace_s)
                if time.monotonic() > give_up:
                    raise DeviceError(
                        f"{error}, and it did not come back within {self.device.grace_s:.0f} s; "
                        "the device ends the job and removes its files by itself"
                    ) from error
                self.say(f"{error}; connecting again")
                if self.stop.wait(min(1.0, self.device.grace_s / 10)):
                    raise KeyboardInterrupt from None

    def _converse(self, connection: Connection) -> dict[str, Any]:
        connection.send(ask="run", seen=self.seen, **self._request(_package_for(connection)))
        heartbeat_s = min(2.0, self.device.grace_s / 4)
        try:
            while True:
                message = connection.poll(heartbeat_s)
                if self.stop.is_set():
                    raise KeyboardInterrupt
                if message is None:
                    connection.send(ask="heartbeat")
                elif message["event"] == "vanished" and not self.seen:
                    raise LostConnectionError(f"the job on device {self.device.name!r} had not begun")
                elif (outcome := self._heed(connection, message)) is not None:
                    return self._document(outcome)
        except KeyboardInterrupt:
            if not connection.sending:  # else the end of the connection says it
                with contextlib.suppress(DeviceError):
                    connection.send(ask="cancel")
                    self._await_done(connection)
            raise

    def _request(self, package: _parcel.Parcel) -> dict[str, Any]:
        private = self.device.runtime == "private"
        return {
            "job": self.name,
            "call": self.call,
            "files": list(self.files),
            "grace_s": self.device.grace_s,
            "module": "litesmith.devices._job",
            "package": {"name": package.name},
            "runtime": {"name": _parcel.runtime_name(), "requirements": _parcel.requirements()} if private else None,
            "size_bytes": sum(path.stat().st_size for path in self.files.values()) + 10 * len(package.data),
            "who": f"{_user()} on {platform.node()}, since {time.strftime('%H:%M')}",
        }

    def _heed(self, connection: Connection, message: dict[str, Any]) -> dict[str, Any] | None:
        """Do what a message asks for; return the last one."""
        event, name = message["event"], self.device.name
        if event == "want":
            self._send(connection, message["what"], message["name"])
            return None
        if event == "installing":
            self.say(f"installing {' '.join(message['requirements'])} on {name}, once")
            return None
        if event == "vanished":
            raise DeviceError(
                f"the worker on device {name!r} was killed, or had no room to write; "
                "what it had started was ended and removed"
            )
        self.seen += 1
        if event == "waiting":
            self.say(f"{name} is busy for {message['holder'] or 'somebody'}; waiting")
        if event != "outcome":
            return None
        with contextlib.suppress(LostConnectionError):  # we have what we wanted; the device forgets the job by itself
            connection.send(ask="fetched")
            self._await_done(connection)
        return message

    def _send(self, connection: Connection, what: str, name: str) -> None:
        if what == "package":
            connection.send_bytes(_package_for(connection).data, self.stop)
        elif what == "pip":
            self.say(f"{self.device.name} has no pip; sending ours")
            connection.send_bytes(_parcel.pip().data, self.stop)
        else:
            connection.send_bytes(self.files[name].read_bytes(), self.stop)

    def _await_done(self, connection: Connection) -> None:
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            message = connection.poll(1.0)
            if message is not None and message["event"] == "done":
                return

    def _document(self, message: dict[str, Any]) -> dict[str, Any]:
        name, outcome = self.device.name, message["outcome"]
        if outcome is None:
            code = message["code"]
            how = f"was ended by signal {-code}" if code is not None and code < 0 else f"failed with exit code {code}"
            said = f"; the last it said: {message['log']}" if message["log"] else ""
            raise DeviceError(f"{self.call['verb']} {how} on device {name!r}{said}")
        for text in outcome["warnings"]:
            warnings.warn(self._from_there(text), LitesmithWarning, stacklevel=5)  # the line that called `run`
        if "error" in outcome:
            kind = getattr(errors, outcome["error"], LitesmithError)
            text = self._from_there(outcome["message"])
            raise (LitesmithError if kind is errors.MissingExtraError else kind)(text)
        found: dict[str, Any] = outcome["result"]
        return found

    def _from_there(self, text: str) -> str:
        return f"on device {self.device.name!r}: {renamed(text, {r: str(p) for r, p in self.files.items()})}"


def _package_for(connection: Connection) -> _parcel.Parcel:
    """Return Litesmith as it goes to a device: with its kernels where the machine is of the same kind."""
    there = connection.here["system"], connection.here["architecture"]
    return _parcel.package(kernels=there == (platform.system(), platform.machine()))


def _user() -> str:
    """Return who asks; a container may run as a user that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # since Python 3.13 an OSError
        return f"user {os.getuid()}"


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a JSON value with the names that files have on the device replaced by their names here."""
    if isinstance(value, str):
        for remote, here in names.items():
            value = re.sub(_JOB_FOLDER + re.escape(remote), here.replace("\\", r"\\"), value)
        return value
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return value
