# SPDX-License-Identifier: Apache-2.0
"""The page of a diagnosis: which layers of a quantized model lose the accuracy, and what to change."""

from __future__ import annotations

from litesmith.accuracy import Layer, LayerReport
from litesmith.report._machine import machine_rows
from litesmith.report._page import Bars, Page, Section, table
from litesmith.report._plots import curves

_WORST = 12


def layers_page(report: LayerReport) -> Page:
    """Return the page of a diagnosis."""
    worst = report.worst
    blame = (
        f"{worst[0].kind} #{worst[0].index} {worst[0].name} is to blame for {100 * worst[0].share:.0f} % of it"
        if worst
        else ""
    )
    error = min((output.sqnr_db for output in report.outputs), default=0.0)
    signal = [layer.sqnr_db for layer in report.layers if abs(layer.sqnr_db) < 200]
    return Page(
        title=f"Where {report.quantized_model} loses accuracy",
        summary=f"At the outputs the signal is {error:.1f} dB above the error{'; ' + blame if blame else ''}.",
        facts=(
            ("float model", report.float_model),
            ("quantized model", report.quantized_model),
            ("compared on", f"{report.samples} samples of {report.data}"),
            ("kernels", report.kernels),
            *machine_rows(report.machine),
        ),
        sections=(
            Section(
                "The layers to blame",
                bars=Bars(
                    "Share of the error at the outputs",
                    tuple((f"#{x.index} {x.kind}", 100 * x.share, f"{100 * x.share:.1f} %") for x in worst[:_WORST]),
                ),
                table=table(
                    ["#", "kind", "name", "cause", "what to change", "then runs", "of the error", "gain dB", "adds"],
                    [_worst_row(layer) for layer in worst[:_WORST]],
                    left=6,
                ),
            ),
            *_not_compared(report),
            *(
                [
                    Section(
                        "From input to output",
                        figures=(
                            curves(
                                "Signal over error, layer by layer", [("dB", signal)], x_label="layer", y_label="dB"
                            ),
                        ),
                        data="Every layer: size, time and error",
                    )
                ]
                if len(signal) > 1
                else []
            ),
            Section(
                "Outputs",
                table=table(
                    ["output", "dB", "cosine", "agreement", "ties"],
                    [
                        (
                            o.name,
                            decibels(o.sqnr_db),
                            f"{o.cosine:.5f}",
                            "" if o.agreement is None else f"{100 * o.agreement:.1f} %",
                            "" if o.ties is None else f"{100 * o.ties:.1f} %",
                        )
                        for o in report.outputs
                    ],
                ),
            ),
            Section(
                "Every layer: size, time and error",
                table=table(
                    ["#", "kind", "name", "type", "size", "µs", "dB", "alone dB", "cosine", "KL", "of the error"],
                    [_row(layer) for layer in report.layers],
                    left=4,
                ),
            ),
        ),
    )


def _worst_row(layer: Layer) -> tuple[str, ...]:
    causes = "; ".join(f"{cause.kind}: {cause.detail}" for cause in layer.causes)
    repair = layer.repair
    change, kernel, gain, adds = (
        ("", "", "", "")
        if repair is None
        else (f"{repair.change}: {repair.option}", repair.kernel, f"{repair.gain_db:.1f}", f"{repair.extra_bytes:,} B")
    )
    return (
        str(layer.index),
        layer.kind,
        layer.name,
        causes,
        change,
        kernel,
        f"{100 * layer.share:.1f} %",
        gain,
        adds,
    )


def _row(layer: Layer) -> tuple[str, ...]:
    return (
        str(layer.index),
        layer.kind,
        layer.name,
        layer.dtype,
        f"{layer.size_bytes / 1000:.1f} kB",
        "" if layer.time_us is None else f"{layer.time_us:.1f}",
        decibels(layer.sqnr_db),
        decibels(layer.isolated_sqnr_db),
        f"{layer.cosine:.5f}",
        f"{layer.kl:.2g}",
        f"{100 * layer.share:.1f} %",
    )


def _not_compared(report: LayerReport) -> list[Section]:
    """Return what one should know about the comparison, and the operators that it leaves out."""
    left_out = [*((name, "has fewer channels than in the float model") for name in report.narrower)]
    left_out += [(name, "has no counterpart in the float model") for name in report.unmatched]
    if not left_out and not report.notes:
        return []
    rows = table(["operator", "why"], left_out, left=2) if left_out else None
    return [Section("What was not compared", items=report.notes, table=rows)]


def decibels(value: float | None) -> str:
    """Return signal over error as text; exact where there is no error at all."""
    return "" if value is None else "exact" if value == float("inf") else f"{value:.1f}"
