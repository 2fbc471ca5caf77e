"""The report of a calibration: a self-contained page, and a picture."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from memfold.client._extras import needs
from memfold.tools.calibrate.bands import Measured, Sample, curve
from memfold.tools.calibrate.bounds import Rate
from memfold.tools.calibrate.calibration import Calibration
from memfold.tools.calibrate.pairs import LABELS, Bools

_COLOURS: Final = {
    "duplicate": "#0072b2",
    "refinement": "#009e73",
    "contradiction": "#d55e00",
    "distinct": "#7f7f7f",
}
_MOST: Final = 100
"""The most wrong pairs shown per kind."""


def figure(made: Calibration) -> Any:
    """Distributions with the bands, the trade-off, and the outcome for each class."""
    with needs("calibrate"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        drawn = Figure(figsize=(10, 7.2), layout="constrained")
        grid = drawn.add_gridspec(2, 2, height_ratios=[1.15, 1])
        _distributions(drawn.add_subplot(grid[0, :]), made)
        _trade_off(drawn.add_subplot(grid[1, 0]), made)
        _fates(drawn.add_subplot(grid[1, 1]), made)
    return drawn


def _distributions(axes: Any, made: Calibration) -> None:
    edges, counts = made.histogram()
    axes.axvspan(
        made.bands.judge, made.bands.merge, color="#f0e442", alpha=0.25, linewidth=0, zorder=0, label="asked"
    )
    for label, own in counts.items():
        shares = np.array(own) / sum(own)
        axes.stairs(shares, edges, color=_COLOURS[label], label=f"{label} ({sum(own)})", linewidth=1.4)
        axes.stairs(shares, edges, color=_COLOURS[label], alpha=0.10, fill=True)
    middle = (edges[0] + edges[-1]) / 2
    for threshold, name in ((made.bands.judge, "judge"), (made.bands.merge, "merge")):
        right = threshold > middle
        axes.axvline(threshold, color="black", linewidth=1)
        axes.annotate(
            f"{name} {threshold:.3f}",
            (threshold, 0.97),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if right else 4, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            va="top",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
        )
    axes.set_xlim(edges[0], edges[-1])
    if made.score is not None:
        # nearly all of a class is at one end
        axes.set_yscale("function", functions=(np.sqrt, np.square))
        axes.set_ylim(0, None)
    axes.set_xlabel("cosine" if made.score is None else "score")
    axes.set_ylabel("share of the class")
    axes.set_title(f"{made.model}: labelled pairs and bands", loc="left", fontweight="bold")
    axes.legend(loc="upper left" if made.bands.judge > 0.5 else "upper center", frameon=False)


def _trade_off(axes: Any, made: Calibration) -> None:
    sample = Sample.of(made.pairs, made.scores)
    sample = sample if made.guard else sample.without_guard()
    for keeps, style in ((0.01, ":"), (0.05, "-"), (0.10, "--")):
        points = curve(sample, made.budget, keeps)
        if points:
            axes.plot(*zip(*points, strict=True), style, color="#0072b2", label=f"false keeps {keeps:.0%}")
    measured = made.measured()
    axes.plot(
        [max(measured.false_merge.rate, 0.0005)],
        [measured.escalation.rate],
        "o",
        color="#d55e00",
        label="these bands, held-out pairs",
        clip_on=False,
    )
    axes.axvline(made.budget.max_false_merge, color="black", linewidth=0.8)
    axes.axhline(made.budget.max_escalation, color="black", linewidth=0.8)
    axes.axvspan(0.0005, made.budget.max_false_merge, ymax=1, color="black", alpha=0.04, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlim(0.0005, 0.5)
    axes.set_ylim(0, None)
    axes.set_xticks([0.001, 0.01, 0.1], ["0.1%", "1%", "10%"])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("false merges (lines: the budget)")
    axes.set_ylabel("escalation")
    axes.set_title("Trade-off", loc="left", fontweight="bold")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=2, frameon=False)


def _fates(axes: Any, made: Calibration) -> None:
    by_label = made.measured().by_label
    names = [label for label in LABELS if label in by_label][::-1]
    left = np.zeros(len(names))
    for fate, colour in (("merged", "#0072b2"), ("asked", "#f0e442"), ("kept", "#bdbdbd")):
        shares = np.array([by_label[name][fate] / max(sum(by_label[name].values()), 1) for name in names])
        axes.barh(names, shares, left=left, color=colour, label=fate)
        for row, (start, share) in enumerate(zip(left, shares, strict=True)):
            if share > 0.05:
                axes.text(
                    start + share / 2,
                    row,
                    f"{share:.0%}",
                    ha="center",
                    va="center",
                    color="white" if fate == "merged" else "black",
                )
        left += shares
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title("Held-out pairs" + (", guard on" if made.guard else ""), loc="left", fontweight="bold")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, frameon=False)


_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: .5rem 0; } th, td { padding: .25rem .7rem; text-align: left; }
th { border-bottom: 1px solid #999; } td { border-bottom: 1px solid #eee; } td.n { text-align: right; white-space: nowrap; }
.warning { background: #fff4d6; padding: .5rem .8rem; margin: .4rem 0; } .over { color: #b02a00; font-weight: 600; }
svg { max-width: 100%; height: auto; } .quiet { color: #666; font-size: .9em; }
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, Rate):
            return f'<td class="n">{html.escape(str(value))}</td>'
        kind = ' class="n"' if isinstance(value, int | float) else ""
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        return f"<td{kind}>{html.escape(shown)}</td>"

    lines = ["<table><tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in head) + "</tr>"]
    lines += ["<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _svg(made: Calibration) -> str:
    with needs("calibrate"):
        import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "memfold"}):
        figure(made).savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    drawn = written.getvalue()
    # inline it needs no head, document type or metadata
    drawn = drawn[drawn.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)


def _rates(measured: Measured) -> list[Rate]:
    return [measured.false_merge, measured.false_keep, measured.escalation, measured.merged_duplicates]


def _wrong(made: Calibration) -> list[tuple[str, Bools]]:
    sample = Sample.of(made.pairs, made.scores)
    clean = sample.clean if made.guard else np.ones_like(sample.clean)
    merged = (sample.scores > made.bands.merge) & clean
    kept = sample.scores < made.bands.judge
    return [
        ("Merged, but not duplicates", np.asarray(merged & sample.others(made.budget.allow_refinements))),
        ("Kept apart, but duplicates", np.asarray(kept & sample.duplicates)),
    ]


def page(made: Calibration, refused: str | None = None) -> str:
    """The report as HTML. It shows texts of pairs: give it only to people who may read them."""
    told = made.report()
    budget = made.budget
    title = f"Calibration of {made.model}"
    kind = "the cosine" if made.score is None else "a fitted score"
    parts = [f"<h1>{html.escape(title)}</h1>"]
    if refused is not None:
        parts.append(f'<p class="warning"><b>Refused.</b> {html.escape(refused)}</p>')
    parts.append(
        f"<p>Method {made.method}, on {kind}: a pair above <b>{made.bands.merge:.6f}</b> is merged"
        f"{' unless the guard objects' if made.guard else ''}, from <b>{made.bands.judge:.6f}</b> on a judge is"
        " asked, below it both are kept."
        + (
            f" A neighbour is scored from a cosine of {made.candidate_threshold} on."
            if made.candidate_threshold is not None
            else ""
        )
        + "</p>"
    )
    parts += [f'<p class="warning">{html.escape(warning)}</p>' for warning in made.warnings]
    parts += [_svg(made), "<h2>Rates</h2>"]
    rows: list[Sequence[object]] = [
        [
            "budget",
            f"{budget.max_false_merge:.1%}",
            f"{budget.max_false_keep:.1%}",
            f"{budget.max_escalation:.1%}",
            "",
        ]
    ]
    for name, held_out in (("held-out pairs", True), ("pairs used to choose the bands", False)):
        for guard in (True, False):
            measured = made.measured(held_out=held_out, guard=guard)
            rows.append([f"{name}, guard {'on' if guard else 'off'}", *_rates(measured)])
    parts.append(_table(["", "false merges", "false keeps", "escalation", "duplicates merged"], rows))
    parts.append(
        '<p class="quiet">In brackets: exact intervals of 95 %. False merges: of all pairs that are not duplicates,'
        " those that are merged without asking"
        + (" (not counting refinements)" if budget.allow_refinements else " (including refinements)")
        + ". False keeps: of all duplicates, those below the judge threshold. Escalation: of all pairs, those that"
        " are asked about; that depends on how many pairs of each class the sample has.</p>"
    )
    parts.append("<h2>By class, held-out pairs</h2>")
    rows = []
    for guard in (True, False):
        for label, counts in made.measured(guard=guard).by_label.items():
            total = sum(counts.values())
            rows.append(
                [f"{label}, guard {'on' if guard else 'off'}", total]
                + [Rate(counts[fate], total) for fate in ("merged", "asked", "kept")]
            )
    parts.append(_table(["", "pairs", "merged", "asked", "kept"], rows))
    parts += [
        "<h2>What is possible</h2>",
        f"<p>{html.escape(made.frontier.told(budget))}.</p>",
    ]
    if made.judged is not None:
        parts += ["<h2>The judge</h2>", _judged(made.judged)]
    for name, mask in _wrong(made):
        parts.append(f"<h2>{name}: {int(mask.sum())}</h2>")
        places = sorted(np.flatnonzero(mask), key=lambda place: -made.scores[place])
        parts.append(
            _table(
                ["label", "score", "cosine", "guard", "part", "a", "b"],
                (
                    [
                        made.pairs[place].label,
                        float(made.scores[place]),
                        made.pairs[place].cosine,
                        ", ".join(made.pairs[place].guard),
                        "held out" if made.held_out[place] else "choice",
                        made.pairs[place].a,
                        made.pairs[place].b,
                    ]
                    for place in places[:_MOST]
                ),
            )
        )
        if len(places) > _MOST:
            parts.append(f'<p class="quiet">and {len(places) - _MOST} more</p>')
    pairs = told["pairs"]
    by_label = ", ".join(f"{count} {label}" for label, count in pairs["by_label"].items())
    origins = ", ".join(f"{count} {origin}" for origin, count in pairs["by_origin"].items())
    left_out = ", ".join(f"{count} {why}" for why, count in pairs["left_out"].items() if count)
    parts += [
        "<h2>Data</h2>",
        f"<p>{pairs['used']} pairs ({by_label}) in {pairs['groups']} groups that share no text;"
        f" {pairs['held_out']} held out. Origin: {origins}."
        + (f" Left out: {html.escape(left_out)}." if left_out else "")
        + f" Fingerprint (SHA-256): <code>{made.fingerprint.hex()}</code>.</p>",
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _judged(judged: dict[str, Any]) -> str:
    rows = [
        [
            label,
            Rate(counts["wrong"]["count"], counts["wrong"]["of"]),
            counts["unsure"],
            counts["failed"],
            ", ".join(f"{count} {verdict}" for verdict, count in counts["verdicts"].items()),
        ]
        for label, counts in judged["by_label"].items()
    ]
    total = Rate(judged["wrong"]["count"], judged["wrong"]["of"])
    return (
        f"<p>{html.escape(str(judged['model']))} was asked about {judged['asked']} pairs in the band;"
        f" {html.escape(str(total))} of its answers were wrong.</p>"
        + _table(["label", "wrong", "unsure", "failed", "verdicts"], rows)
    )


def write_html(made: Calibration, path: Path, refused: str | None = None) -> None:
    path.write_text(page(made, refused), encoding="utf-8")
