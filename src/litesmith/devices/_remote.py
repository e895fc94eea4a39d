# SPDX-License-Identifier: Apache-2.0
"""Run a verb on a device and bring its Result back, over a connection that may break."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litesmith.devices._android import bench_android
from litesmith.devices._device import Device, find
from litesmith.devices._errand import Errand, Say, renamed
from litesmith.errors import DataError, DeviceError, LitesmithError, UsageError
from litesmith.model import Model
from litesmith.progress import task
from litesmith.result import Result
from litesmith.runtime import custom_ops
from litesmith.runtime._custom_op_binding import kernels_of

if TYPE_CHECKING:
    from litesmith.data import Dataset

VERBS = ("accelerators", "bench", "copies", "profile", "threads")
"""What a device can be asked for: public functions that take models and return a Result."""

SAMPLES = {"accelerators": 200}
"""How many samples a verb takes unless told otherwise."""
LABELS = "litesmith labels"  # the name of their array: no input is called so
FEWEST_SAMPLES = 32  # as many as `bench` takes


@dataclass(frozen=True)
class DeviceResult:
    """What one device gave: the JSON of a result, or the error."""

    device: str
    url: str
    result: dict[str, Any] | None
    error: str = ""


@dataclass(frozen=True)
class DeviceResults(Result, kind="devices", schema=1):
    """What several devices gave, in the order they were asked."""

    verb: str
    devices: tuple[DeviceResult, ...]


def run(
    verb: str,
    *models: Model | str | Path,
    device: str | Device,
    devices_file: str | Path | None = None,
    data: Dataset | None = None,
    say: Say | None = None,
    stop: threading.Event | None = None,
    **options: Any,
) -> Result:
    """Run a verb on a device and return its Result, with the facts of that machine.

    A connection that breaks is made again, and the job goes on; a device that is busy with another job is waited for. On
    return, and on every error, the job's processes and files are gone from the device.

    Args:
        verb: "bench", "profile", "threads", "copies" or "accelerators".
        models: Paths or Models.
        device: An address (`ssh://user@host`), a name of the devices file, or a Device.
        devices_file: Where devices are listed; the user's own file by default.
        data: Samples for a verb that takes them; as many as it takes are sent, with their labels.
        say: Called with a sentence when there is something to tell: waiting, installing, connecting again.
        stop: Set it from another thread to end the job, as Ctrl-C does here.
        options: Of the verb's function.

    Example:
        >>> import litesmith
        >>> here = litesmith.devices.Device("here", "local://", runtime="installed", folder="/tmp/litesmith-example")
        >>> result = litesmith.devices.run("bench", litesmith.samples.model(), device=here, runs=5, memory=False)
        >>> len(result.latencies[0].samples_ms)
        5
    """
    target = find(device, devices_file)
    if verb not in VERBS:
        raise UsageError(f"{verb!r} does not run on a device; these do: {', '.join(VERBS)}")
    if not models:
        raise UsageError("there is no model to run; give at least one")
    with contextlib.ExitStack() as stack:
        taken = None if data is None else _drawn(data, verb, options)
        parcels = stack.enter_context(_files(models, taken))
        if target.address[0] == "adb":
            return _on_android(verb, target, [(path, shown) for _, path, shown in parcels], options, data, say)
        kernels = _kernels([path for _, path, _ in parcels[: len(models)]])
        call = {
            "verb": verb,
            "custom_ops": [f"{name}={remote}{symbol}" for name, remote, symbol, _ in kernels],
            "models": [remote for remote, _, _ in parcels[: len(models)]],
            "data": None if taken is None else {"file": parcels[-1][0], **_opening(taken, parcels[0][1])},
            "options": options,
            "command": sys.argv,
        }
        try:
            json.dumps(call)
        except TypeError as error:
            raise UsageError(f"an option of {verb} cannot be sent to a device: {error}") from None
        stack.enter_context(task(f"{verb} on {target.name}"))
        document = Errand(
            target,
            call,
            {remote: path for remote, path, _ in parcels} | {remote: path for _, remote, _, path in kernels},
            say or (lambda _: None),
            stop or threading.Event(),
        ).result()
    shown = {remote: name for remote, _, name in parcels}
    return _read(renamed(document, shown))


def _on_android(
    verb: str,
    device: Device,
    models: Sequence[tuple[Path, str]],
    options: dict[str, Any],
    data: Dataset | None,
    say: Say | None,
) -> Result:
    if verb != "bench" or data is not None:
        raise UsageError(
            f"device {device.name!r} is an Android device: bench runs there, on random inputs, and no other verb"
        )
    known: dict[str, Any] = {key: options[key] for key in ("threads", "kernels", "runs", "seconds") if key in options}
    for key, kind in (("threads", int), ("kernels", str)):
        if isinstance(known.get(key), kind):
            known[key] = (known[key],)
    with task(f"{verb} on {device.name}"):
        return bench_android(device, models, say=say, **known)


def run_all(
    verb: str,
    *models: Model | str | Path,
    devices: Sequence[str | Device],
    devices_file: str | Path | None = None,
    say: Say | None = None,
    **options: Any,
) -> DeviceResults:
    """Run a verb on several devices at once; one that fails does not keep the others from answering.

    Takes what ``run`` takes.
    """
    targets = [find(device, devices_file) for device in devices]
    stop = threading.Event()

    def one(target: Device) -> DeviceResult:
        tell = None if say is None else (lambda text: say(f"{target.name}: {text}"))
        try:
            result = run(verb, *models, device=target, say=tell, stop=stop, **options)
        except UsageError:
            raise
        except LitesmithError as error:
            return DeviceResult(target.name, target.url, None, str(error))
        return DeviceResult(target.name, target.url, json.loads(result.to_json()))

    with ThreadPoolExecutor(max(1, len(targets))) as pool:
        try:
            return DeviceResults(verb, tuple(pool.map(one, targets)))
        except BaseException:
            stop.set()  # the pool waits for its threads, and they for their devices
            raise


def read(result: DeviceResult) -> Result | None:
    """Return the Result of one device, None where it failed."""
    return None if result.result is None else _read(result.result)


def _read(document: dict[str, Any]) -> Result:
    """Return a Result of any kind from its JSON."""
    from litesmith import measure  # noqa: F401  (where the kinds are defined)

    kinds = {kind.kind: kind for kind in Result.__subclasses__()}
    if document["kind"] not in kinds:
        raise DeviceError(f"the device answered with a result of kind {document['kind']!r}, which is not known here")
    return kinds[document["kind"]].from_json(json.dumps(document))


@contextlib.contextmanager
def _files(models: Sequence[Model | str | Path], data: Dataset | None) -> Iterator[list[tuple[str, Path, str]]]:
    """Yield (name on the device, path here, name to show) of each file to send: the models, then the samples."""
    with tempfile.TemporaryDirectory(prefix="litesmith-") as scratch:
        found = []
        for index, model in enumerate(models):
            path, shown = Path(scratch) / f"{index}.tflite", "model"
            if isinstance(model, Model):
                model.save(path)
                shown = str(model.source or model.description or "model")
            else:
                path, shown = Path(model), str(model)
                Model.load(path).verify()  # a damaged file is told before anything is sent
            found.append((f"models/{index}/{path.name}", path, shown))
        if data is not None:
            found.append(("samples.npz", _samples(data, found[0][1], Path(scratch) / "samples.npz"), "samples"))
        yield found


def _kernels(models: Sequence[Path]) -> list[tuple[str, str, str, Path]]:
    """Return (operator, name on the device, :symbol, path here) of each kernel of a custom operator that must come along."""
    known = custom_ops()
    found: list[tuple[str, str, str, Path]] = []
    for name in dict.fromkeys(name for path in models for name in kernels_of(Model.load(path))):
        file, colon, symbol = known[name].origin.partition(":")
        if not Path(file).is_file():
            raise UsageError(
                f"the kernel of the custom operator {name!r} cannot be sent to a device, as it is in no file of its own; "
                "register it in a FILE.py, or give a library built for the device"
            )
        found.append((name, f"kernels/{len(found)}/{Path(file).name}", colon + symbol, Path(file)))
    return found


def _drawn(data: Dataset, verb: str, options: dict[str, Any]) -> Dataset:
    """Return the samples to send: those that the verb itself would draw."""
    most = options.get("samples", SAMPLES.get(verb, FEWEST_SAMPLES))
    return data.take(min(len(data), most), seed=options.get("seed", 0))


def _opening(data: Dataset, model: Path) -> dict[str, Any]:
    """Return how the file that ``_samples`` writes is to be opened."""
    names = list(data.bind(Model.load(model)).inputs)
    return {"inputs": names, "labels": None if data.labels is None else LABELS}


def _samples(data: Dataset, model: Path, path: Path) -> Path:
    import numpy as np

    taken = [sample.inputs for sample in data.bind(Model.load(model))]
    if not taken:
        raise DataError("the data has no samples to run on")
    if len({tuple((name, array.shape) for name, array in sample.items()) for sample in taken}) > 1:
        raise DataError("samples of different shapes cannot be sent to a device")
    arrays: dict[str, Any] = {name: np.stack([sample[name] for sample in taken]) for name in taken[0]}
    if data.labels is not None:
        text = data.labels.dtype.hasobject and all(isinstance(label, str) for label in data.labels)
        arrays[LABELS] = data.labels.astype(str) if text else data.labels
        if arrays[LABELS].dtype.hasobject:
            raise DataError("labels that are neither numbers nor text, such as boxes, cannot be sent to a device")
    if data.class_names is not None:
        arrays["class_names"] = np.array(data.class_names)
    np.savez(path, **arrays)
    return path
