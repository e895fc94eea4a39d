# SPDX-License-Identifier: Apache-2.0
"""What it costs to run a model here, each figure with its spread and the facts of the machine."""

from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._accelerator_result import AcceleratorRun, Accelerators, Agreement
from litesmith.measure._accelerators import accelerators
from litesmith.measure._app import App, CallSite, FunctionTime, app
from litesmith.measure._app_tips import Tip
from litesmith.measure._audit import Audit, Copy, CopyAudit, audit_copies
from litesmith.measure._bench import Bench, Configuration, Latency, bench
from litesmith.measure._calls import Call, watch_calls
from litesmith.measure._compare import Change, Comparison, compare
from litesmith.measure._copies import Copies, CopyPath, copies
from litesmith.measure._doctor import Diagnosis, Finding, doctor
from litesmith.measure._export import model_explorer_node_data, profiling_proto, write_csv
from litesmith.measure._findings import Oddity
from litesmith.measure._gains import Gain
from litesmith.measure._memory import MemoryUse
from litesmith.measure._profile import KindTime, OperatorTime, Profile, profile
from litesmith.measure._roofline import Roofline, roofline
from litesmith.measure._single_operator import Contestant, OperatorContest, optimize_op
from litesmith.measure._spans import Span, span
from litesmith.measure._statistics import Summary, summarize
from litesmith.measure._threads import ThreadAdvice, ThreadCount, Threads, threads
from litesmith.measure._trace import Trace, trace, tracing, write_trace

__all__ = [
    "AcceleratorRun",
    "Accelerators",
    "Agreement",
    "App",
    "Audit",
    "Bench",
    "Call",
    "CallSite",
    "Change",
    "Comparison",
    "Configuration",
    "Contestant",
    "Copies",
    "Copy",
    "CopyAudit",
    "CopyPath",
    "Diagnosis",
    "Finding",
    "FunctionTime",
    "Gain",
    "KindTime",
    "Latency",
    "MachineFacts",
    "MemoryUse",
    "Oddity",
    "OperatorContest",
    "OperatorTime",
    "Profile",
    "Roofline",
    "Span",
    "Summary",
    "ThreadAdvice",
    "ThreadCount",
    "Threads",
    "Tip",
    "Trace",
    "accelerators",
    "app",
    "audit_copies",
    "bench",
    "compare",
    "copies",
    "doctor",
    "machine_facts",
    "model_explorer_node_data",
    "optimize_op",
    "profile",
    "profiling_proto",
    "roofline",
    "span",
    "summarize",
    "threads",
    "trace",
    "tracing",
    "watch_calls",
    "write_csv",
    "write_trace",
]
