# SPDX-License-Identifier: Apache-2.0
"""The process in which one accelerator runs one model: it compiles, times, proves and answers, or dies alone.

It reads requests as JSON, one a line, and answers each with a line of JSON. What libraries print goes to stderr.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import LitesmithError, SessionError
from litesmith.measure._memory import MemoryUse, peak_bytes, resident_bytes
from litesmith.measure._placement import Evidence
from litesmith.measure._timing import Timed, time_for, warm_up
from litesmith.runtime import Session, _litert
from litesmith.runtime._accelerators import Accelerator
from litesmith.runtime._source import ModelSource

Array = np.ndarray[Any, Any]
_GPU_NODE = re.compile(r"Node number (\d+) \(LITERT_WEBGPU\) failed to invoke")


@dataclass(frozen=True)
class Job:
    """What the process is for."""

    model: str
    accelerator: Accelerator
    threads: int
    folder: str  # for caches
    feeds: str  # an .npz of the inputs

    def to_json(self) -> str:
        """Return the job as a line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Read the job from a line."""
        fields = json.loads(text)
        given = fields.pop("accelerator")
        options = tuple((key, value) for key, value in given.pop("options"))
        return Job(accelerator=Accelerator(**given, options=options), **fields)


class Worker:
    """One model on one accelerator."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._session: Session
        self._timed: Timed

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile, run for the first time, and say what it took; `to` is an .npz for the outputs."""
        from litesmith.runtime._selfcheck import TINY_MODEL

        with Session(TINY_MODEL) as tiny:  # what any first model costs is not this model's
            tiny.run()
        if self._job.accelerator.name == "xnnpack-cache":
            self._make().close()  # which writes the cache
        before = resident_bytes()
        self._session = self._make()
        self._feed(self._job.feeds)
        self._timed = Timed(self._job.accelerator.name, self._session.run)
        warm_up(self._timed, limit_s=float(request["warm_s"]))
        after = resident_bytes()
        np.savez(request["to"], allow_pickle=False, **dict(self._session.outputs))
        facts = self._session.compiled
        return {
            "load_ms": facts.load_ms,
            "compile_ms": facts.compile_ms,
            "first_ms": self._timed.first_ms,
            "steady": self._timed.steady,
            "memory": asdict(MemoryUse(max(peak_bytes(), after), after, after - before)),
        }

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run for a time, or so often, and return the samples."""
        self._timed.samples_ms.clear()
        time_for(self._timed, runs=request["runs"], seconds=float(request["seconds"]))
        return {"samples_ms": self._timed.samples_ms}

    def prove(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Return the evidence of where the operators ran."""
        accelerator, facts = self._job.accelerator, self._session.compiled
        backend: Any = self._session._backend  # noqa: SLF001  (what LiteRT says of a compiled model is asked there)
        wholly = ctypes.c_bool()
        litert, compiled = _litert.load(), backend._compiled  # noqa: SLF001
        litert.call("LiteRtCompiledModelIsNonCpuFullyAccelerated", compiled, ctypes.byref(wholly))
        evidence = {
            "log": facts.log,
            "errors": backend._take_errors(),  # noqa: SLF001
            "wholly_off_cpu": wholly.value,
            "events": [] if accelerator.name == "webgpu" else self._events(),
            "note": self._gpu_node() if accelerator.name == "webgpu" else self._note(),
        }
        if accelerator.library:
            from litesmith.runtime._accelerators_delegate import delegate_partitions

            source = ModelSource.of(self._job.model, verify=False)
            evidence["pieces"] = delegate_partitions(source, accelerator.library, accelerator.options)
        elif accelerator.name == "litesmith":
            evidence |= self._decisions()
        return evidence

    def predict(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run on each of the samples of one .npz and write the outputs to another."""
        rows: dict[str, list[Array]] = {name: [] for name in self._session.outputs}
        with np.load(request["samples"], allow_pickle=False) as samples:
            arrays = {name: samples[name] for name in samples.files}
        for index in range(len(next(iter(arrays.values())))):
            outputs = self._session.run({name: array[index] for name, array in arrays.items()})
            for name, output in outputs.items():
                rows[name].append(output.copy())
        np.savez(request["to"], allow_pickle=False, **{name: np.stack(values) for name, values in rows.items()})
        return {}

    def _make(self, *, profiling: bool = False) -> Session:
        folder = Path(self._job.folder)
        options = self._job.accelerator.compile_options(threads=self._job.threads, folder=folder, profiling=profiling)
        session = Session._with_options(self._job.model, options, verify=False)  # noqa: SLF001  (the seam for this)
        if session.compiled.backend != "compiled":
            raise SessionError(f"this model runs by LiteRT's Interpreter only: {session.compiled.reason}")
        return session

    def _feed(self, path: str, session: Session | None = None) -> None:
        target = session or self._session
        with np.load(path, allow_pickle=False) as feeds:
            arrays = {name: feeds[name] for name in feeds.files}
        target.resize({name: a.shape for name, a in arrays.items() if a.shape != target.inputs[name].shape})
        for name, array in arrays.items():
            np.copyto(target.inputs[name], array)

    def _events(self) -> list[tuple[str, str, int]]:
        with self._make(profiling=True) as session:
            self._feed(self._job.feeds, session)
            session.run()
            session.start_profile()
            session.run()
            return [(event.type, event.tag, event.node) for event in session.stop_profile()]

    def _gpu_node(self) -> str:
        """Return the number of the GPU's node in the graph, empty if there is none.

        With a profiler, LiteRT's WebGPU accelerator refuses to run, and LiteRT then names the node that failed.
        """
        try:
            self._events()
        except SessionError as error:
            found = _GPU_NODE.search(str(error))
            if found is None:
                raise
            return found[1]
        return ""

    def _note(self) -> str:
        name = self._job.accelerator.name
        if name == "xnnpack-cache":
            size = sum(file.stat().st_size for file in Path(self._job.folder).glob("weights.xnnpack*"))
            return f"its cache holds {size / 1e6:.1f} MB" if size else "it wrote no cache"
        return self._session.compiled.delegate if name == "litesmith" else ""

    def _decisions(self) -> dict[str, Any]:
        from litesmith.runtime._interpreter import make_interpreter
        from litesmith.runtime._native import LITESMITH, decisions
        from litesmith.runtime._options import CompileOptions
        from litesmith.runtime._partitions import partitions

        source = ModelSource.of(self._job.model, verify=False)
        interpreter = make_interpreter(source, CompileOptions(native=True))
        delegate = interpreter._delegates[0]._get_native_delegate_pointer()  # noqa: SLF001
        made = [(int(d["node"]), bool(d["taken"]), str(d["note"])) for d in decisions(delegate)]
        pieces = [p.operators for p in partitions(source, verify=False) if p.delegate == LITESMITH]
        return {"decisions": made, "pieces": pieces}


def evidence_of(reply: dict[str, Any], printed: str) -> Evidence:
    """Return the evidence in the answer of a worker, with what its process printed."""
    return Evidence(
        log=tuple(reply["log"]),
        errors=reply["errors"],
        printed=printed,
        wholly_off_cpu=reply["wholly_off_cpu"],
        events=tuple((kind, tag, node) for kind, tag, node in reply["events"]),
        pieces=tuple(tuple(piece) for piece in reply.get("pieces", [])),
        decisions=tuple((node, taken, note) for node, taken, note in reply.get("decisions", [])),
        note=reply["note"],
    )


def main() -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    worker = Worker(Job.from_json(sys.stdin.readline()))
    actions = {
        "greet": lambda _: {},
        "open": worker.open,
        "time": worker.time,
        "prove": worker.prove,
        "predict": worker.predict,
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = actions[request["do"]](request)
        except LitesmithError as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), file=replies, flush=True)
