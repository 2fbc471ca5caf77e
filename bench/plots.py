"""Plots of results as SVG: the same figures give the same file, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from textwrap import fill

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# The background is transparent, on a white or nearly black page: this grey has the same contrast to both (4.3).
INK = "#797979"
COLOURS = ("#3b82c4", "#d9822b", "#3f9e6a", "#c0567a", "#8a6fc4", "#8c8c32")
MARKERS = "osD^vP"
STYLE = {
    "svg.hashsalt": "memfold",  # ids come from this, not from chance
    "svg.fonttype": "none",  # text stays text: small files with readable differences
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def bars(groups: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> str:
    """A bar of each series for each group, with its value."""
    thick = 0.8 / len(series)
    with mpl.rc_context(STYLE):
        figure, axes = _axes(1.1 + len(groups) * (0.16 + 0.24 * len(series)) + _legend_height(series))
        for i, (name, values) in enumerate(series.items()):
            at = [group + (i - (len(series) - 1) / 2) * thick for group in range(len(groups))]
            drawn = axes.barh(at, values, thick * 0.9, label=name, color=COLOURS[i % len(COLOURS)])
            axes.bar_label(drawn, [_figure(value) for value in values], padding=3, fontsize=9)
        axes.set_yticks(range(len(groups)), [fill(group, 28) for group in groups])
        axes.invert_yaxis()
        axes.margins(x=0.15)  # room for the values
        axes.locator_params(axis="x", nbins=6)
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter(lambda value, _: _figure(value))
        return _svg(figure, axes, series)


def lines(x: Sequence[float], series: Mapping[str, Sequence[float]], x_label: str, unit: str) -> str:
    """A line of each series over x, which is logarithmic; y begins at 0."""
    with mpl.rc_context(STYLE):
        figure, axes = _axes(4 + _legend_height(series))
        for i, (name, values) in enumerate(series.items()):
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            # Markers distinguish a few points; many would hide the line.
            axes.plot(x, values, label=name, markersize=5, markevery=-(-len(x) // 12), **style)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(unit)
        axes.xaxis.set_major_formatter(lambda value, _: _figure(value))
        axes.yaxis.set_major_formatter(lambda value, _: _figure(value))
        axes.grid(axis="y", color=INK, alpha=0.25)
        return _svg(figure, axes, series)


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, height), layout="constrained")
    return figure, figure.add_subplot()


def _legend_height(series: Mapping[str, Sequence[float]]) -> float:
    return 0.25 * -(-len(series) // 3) if len(series) > 1 else 0


def _figure(value: float) -> str:
    """Three significant digits, and all digits of larger numbers."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def _svg(figure: Figure, axes: Axes, series: Mapping[str, Sequence[float]]) -> str:
    if len(series) > 1:
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(len(series), 3)
        )
    out = StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
