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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import LitesmithError, SessionError
from litesmith.measure._memory import MemoryUse, peak_bytes, resident_bytes
from litesmith.measure._placement import Evidence
from litesmith.measure._timing import Timed, time_for, warm_up
from litesmith.runtime import Session, _litert, partitions
from litesmith.runtime._accelerators import Accelerator
from litesmith.runtime._source import ModelSource

Array = np.ndarray[Any, Any]
_APART = ("webgpu", "openvino")
"""What takes its operators before the kernels of the CPU are chosen."""
_INTERPRETED = ("xnnpack", "builtin", "reference", "litesmith")
"""What the Interpreter has too, for models that LiteRT does not compile."""
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
        if request["reset"]:  # what comes out must not depend on how many runs the warm-up took
            self._session.reset()
            self._session.run()
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
        if facts.backend == "interpreter":
            return self._graph()
        backend: Any = self._session._backend  # noqa: SLF001  (what LiteRT says of a compiled model is asked there)
        wholly = ctypes.c_bool()
        litert, compiled = _litert.load(), backend._compiled  # noqa: SLF001
        litert.call("LiteRtCompiledModelIsNonCpuFullyAccelerated", compiled, ctypes.byref(wholly))
        evidence = {"log": facts.log, "errors": backend._take_errors(), "wholly_off_cpu": wholly.value}  # noqa: SLF001
        evidence["events"], failure = self._events()
        evidence["note"] = self._gpu_node(failure) if accelerator.name == "webgpu" else self._note()
        if failure is not None and not evidence["note"]:
            raise failure
        if accelerator.library:
            from litesmith.runtime._accelerators_delegate import delegate_partitions

            source = ModelSource.of(self._job.model, verify=False)
            evidence["pieces"] = delegate_partitions(source, accelerator.library, accelerator.options)
        elif accelerator.name == "litesmith":
            evidence |= self._decisions()
        return evidence

    def _graph(self) -> dict[str, Any]:
        """Return which operators of the Interpreter's graph are in the pieces of a delegate: it has no profiler."""
        name, source = self._job.accelerator.name, ModelSource.of(self._job.model, verify=False)
        kernels = "delegate" if name == "litesmith" else name
        found = partitions(source, threads=self._job.threads, kernels=kernels, verify=False)
        graph = [(piece.delegate or "", piece.operators) for piece in found]
        nothing = {"log": [], "errors": "", "wholly_off_cpu": False, "events": []}
        return {**nothing, "graph": graph, "note": self._session.compiled.delegate}

    def predict(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run on each of the samples of one .npz and write the outputs to another."""
        rows: dict[str, list[Array]] = {name: [] for name in self._session.outputs}
        with np.load(request["samples"], allow_pickle=False) as samples:
            arrays = {name: samples[name] for name in samples.files}
        for index in range(len(next(iter(arrays.values())))):
            if request["reset"]:
                self._session.reset()
            outputs = self._session.run({name: array[index] for name, array in arrays.items()})
            for name, output in outputs.items():
                rows[name].append(output.copy())
        if ragged := [name for name, values in rows.items() if len({value.shape for value in values}) > 1]:
            raise SessionError(
                f"the shape of the output {ragged[0]!r} depends on the sample; give no data to compare on"
            )
        np.savez(request["to"], allow_pickle=False, **{name: np.stack(values) for name, values in rows.items()})
        return {}

    def _make(self, *, profiling: bool = False) -> Session:
        accelerator, folder = self._job.accelerator, Path(self._job.folder)
        options = accelerator.compile_options(threads=self._job.threads, folder=folder, profiling=profiling)
        if profiling and accelerator.name.startswith(_APART):
            options = replace(options, kernels="builtin")  # what is left to the CPU then shows operator by operator
        session = Session._with_options(self._job.model, options, verify=False)  # noqa: SLF001  (the seam for this)
        if session.compiled.backend != "compiled" and accelerator.name not in _INTERPRETED:
            raise SessionError(f"this model runs by LiteRT's Interpreter only: {session.compiled.reason}")
        return session

    def _feed(self, path: str, session: Session | None = None) -> None:
        target = session or self._session
        with np.load(path, allow_pickle=False) as feeds:
            arrays = {name: feeds[name] for name in feeds.files}
        target.resize({name: a.shape for name, a in arrays.items() if a.shape != target.inputs[name].shape})
        for name, array in arrays.items():
            np.copyto(target.inputs[name], array)

    def _events(self) -> tuple[list[tuple[str, str, int]], SessionError | None]:
        """Return what the profiler saw of a run, and why the run failed if it did: then it is what was seen until then."""
        failure = None
        with self._make(profiling=True) as session:
            self._feed(self._job.feeds, session)
            session.start_profile()
            try:
                session.run()
            except SessionError as error:
                failure = error
            else:  # the first run may differ
                session.stop_profile()
                session.start_profile()
                session.run()
            return [(event.type, event.tag, event.node) for event in session.stop_profile()], failure

    def _gpu_node(self, failure: SessionError | None) -> str:
        """Return the number of the GPU's node in the graph, empty if there is none.

        With a profiler, LiteRT's WebGPU accelerator refuses to run, and LiteRT then names the node that failed.
        """
        found = None if failure is None else _GPU_NODE.search(str(failure))
        return found[1] if found else ""

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
        graph=tuple((delegate, tuple(piece)) for delegate, piece in reply.get("graph", [])),
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
        print(json.dumps({"number": request["number"], **reply}), file=replies, flush=True)
