# SPDX-License-Identifier: Apache-2.0
"""The page of a diagnosis: which layers of a quantized model lose the accuracy, and what to change."""

from __future__ import annotations

from litesmith.accuracy import Layer, LayerReport
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
        ),
        sections=(
            Section(
                "The layers to blame",
                bars=Bars(
                    "Share of the error at the outputs",
                    tuple((f"#{x.index} {x.kind}", 100 * x.share, f"{100 * x.share:.1f} %") for x in worst[:_WORST]),
                ),
                table=table(
                    ["#", "kind", "name", "cause", "what to change", "of the error", "gain dB", "adds"],
                    [_worst_row(layer) for layer in worst[:_WORST]],
                    left=5,
                ),
            ),
            *(
                [
                    Section(
                        "From input to output",
                        figures=(
                            curves(
                                "Signal over error, layer by layer", [("dB", signal)], x_label="layer", y_label="dB"
                            ),
                        ),
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
                            f"{o.sqnr_db:.1f}",
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
                    ["#", "kind", "name", "type", "size", "µs", "dB", "alone dB", "of the error"],
                    [_row(layer) for layer in report.layers],
                    left=4,
                ),
            ),
        ),
    )


def _worst_row(layer: Layer) -> tuple[str, ...]:
    causes = "; ".join(f"{cause.kind}: {cause.detail}" for cause in layer.causes)
    repair = layer.repair
    change = ("", "", "") if repair is None else (repair.change, f"{repair.gain_db:.1f}", f"{repair.extra_bytes:,} B")
    return (
        str(layer.index),
        layer.kind,
        layer.name,
        causes,
        change[0],
        f"{100 * layer.share:.1f} %",
        change[1],
        change[2],
    )


def _row(layer: Layer) -> tuple[str, ...]:
    return (
        str(layer.index),
        layer.kind,
        layer.name,
        layer.dtype,
        f"{layer.size_bytes / 1000:.1f} kB",
        "" if layer.time_us is None else f"{layer.time_us:.1f}",
        f"{layer.sqnr_db:.1f}",
        "" if layer.isolated_sqnr_db is None else f"{layer.isolated_sqnr_db:.1f}",
        f"{100 * layer.share:.1f} %",
    )
