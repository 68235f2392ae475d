"""The small report a finished run can leave: a contact sheet and a page of Markdown."""

from __future__ import annotations

from pathlib import Path

from fusedplanes.files import write_atomically
from fusedplanes.images import composite_over, save
from fusedplanes.multiview import MultiViewDataset
from fusedplanes.planes.evaluate import Evaluation
from fusedplanes.planes.model import PlanesModel
from fusedplanes.planes.run import TrainingSummary
from fusedplanes.reports.contact_sheet import contact_sheet
from fusedplanes.reports.line_plot import line_plot
from fusedplanes.training.log import read_log
from fusedplanes.training.metrics import psnr

OBJECTS, PAIRS = 8, 3


def write_report(
    model: PlanesModel, dataset: MultiViewDataset, result: Evaluation, summary: TrainingSummary, out: str | Path
) -> None:
    """Write ``contact_sheet.png`` (held-out views, truth beside render), ``quality.svg`` and ``report.md``."""
    out = Path(out)
    background = model.config.model.background_color
    rows, captions = [], []
    for row in result.objects[:OBJECTS]:
        held_out = dataset[row.id].views("test")
        cameras = held_out.cameras[:PAIRS]
        truth = composite_over(held_out.images[:PAIRS], background)
        rendered = model.render(row.id, cameras).color.cpu()
        rows.append([picture for pair in zip(truth, rendered, strict=True) for picture in pair])
        captions.append([text for value in psnr(rendered, truth).tolist() for text in ("", f"{value:.1f} dB")])
    columns = ["truth", "render"] * (len(rows[0]) // 2)
    save(out / "contact_sheet.png", contact_sheet(rows, columns=columns, captions=captions))
    write_atomically(out / "quality.svg", _curve(out).encode())
    write_atomically(out / "report.md", _page(result, summary).encode())


def _curve(out: Path) -> str:
    points = [
        (record.metrics["training_seconds"], record.metrics["held_out_psnr"])
        for record in read_log(out / "log.jsonl")
        if "held_out_psnr" in record.metrics and record.phase != "autoencoder"
    ]
    return line_plot(
        {"held-out views": points}, title="Quality over time", x_label="training seconds", y_label="PSNR (dB)"
    )


def _page(result: Evaluation, summary: TrainingSummary) -> str:
    lines = [
        f"# {summary.objects} objects, {summary.method}",
        "",
        "![held-out views, truth beside render](contact_sheet.png)",
        "",
        "| | PSNR (dB) | foreground PSNR (dB) | SSIM |",
        "|---|---|---|---|",
    ]
    for name, quality in [(summary.method, result.average), *((f"floor: {k}", v) for k, v in result.floors.items())]:
        lines.append(f"| {name} | {quality.psnr:.2f} | {quality.psnr_foreground:.2f} | {quality.ssim:.3f} |")
    lines += [
        "",
        f"- training: {summary.seconds:.0f} s ({summary.seconds_per_object:.1f} s per object), "
        f"predicted {summary.predicted_seconds:.0f} s",
        f"- one object: {summary.object_bytes:,} bytes; shared by the class: {summary.shared_bytes:,} bytes "
        f"({result.shared_bytes_without_encoder:,} without the encoder, which rendering does not need)",
        f"- peak memory: {summary.peak_memory_bytes / 1e6:.0f} MB",
        "",
        "![held-out PSNR over training time](quality.svg)",
        "",
    ]
    return "\n".join(lines)
