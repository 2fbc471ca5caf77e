"""The command that derives thresholds from labelled pairs: calibrate."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psycopg

from memfold.client.calls import Memfold
from memfold.client.embedding import Embedder
from memfold.client.errors import CalibrationRefusedError
from memfold.client.judging import Judge, OpenAIJudge
from memfold.tools.cli._embedding import embed_options, make_embedder
from memfold.tools.cli._judge import plugged_in_judge
from memfold.tools.cli._pairs import load_pairs
from memfold.tools.cli._shared import (
    FILE,
    PATH,
    dsn_option,
    file_name,
    json_option,
    open_client,
    progress,
    report,
    resolve,
    say,
    show,
    show_lines,
    table_of,
    tenant_option,
)

if TYPE_CHECKING:
    from memfold.tools.calibrate import Calibration, Rate
    from memfold.tools.calibrate.replay import Replay

_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command()
@click.argument("model")
@dsn_option
@tenant_option("Only this tenant's pairs; --pairs are stored for it.")
@click.option(
    "--pairs", type=FILE, metavar="FILE.jsonl", help="First store these: one a, b, label, cosine per line."
)
@click.option(
    "--anchors",
    is_flag=True,
    help="Measure it on the pairs that come with memfold, which needs no labels, and put the result in force.",
)
@embed_options
@click.option(
    "--max-false-merge",
    type=_SHARE,
    default=0.01,
    show_default=True,
    help="Merged without asking, of all pairs that are not duplicates.",
)
@click.option(
    "--max-false-keep",
    type=_SHARE,
    default=0.05,
    show_default=True,
    help="Below the judge threshold, of all duplicates.",
)
@click.option(
    "--max-escalation", type=_SHARE, default=0.35, show_default=True, help="Asked about, of all pairs."
)
@click.option(
    "--holdout", type=_SHARE, default=0.2, show_default=True, help="Share of pairs held out for measuring."
)
@click.option(
    "--confidence", type=_SHARE, default=0.95, show_default=True, help="Confidence level of the bounds."
)
@click.option(
    "--method",
    type=click.Choice(["budget", "percentile"]),
    default="budget",
    show_default=True,
    help="How the bands are chosen.",
)
@click.option(
    "--score",
    type=click.Choice(["cosine", "fitted", "best"]),
    default="cosine",
    show_default=True,
    help="What the bands apply to; best: the fitted score if the held-out pairs favour it.",
)
@click.option("--no-guard", is_flag=True, help="The bands are for policies without the guard.")
@click.option(
    "--allow-refinements", is_flag=True, help="Do not count an automatic merge of a refinement as an error."
)
@click.option("--weak", is_flag=True, help="Also use collected pairs that nobody has looked at.")
@click.option(
    "--report",
    "html",
    type=PATH,
    metavar="FILE.html",
    help="Write the report here, with the texts of misjudged pairs.",
)
@click.option(
    "--replay",
    "bucket",
    metavar="BUCKET",
    help="Show what it would do to the texts of this bucket, with 30 texts per outcome to read.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0, 1),
    help="Use a fitted score from this cosine on; default: from your labels, or 0.80.",
)
@click.option("--apply", "applied", is_flag=True, help="Put the calibration in force.")
@click.option("--undo", is_flag=True, help="Undo the last --apply instead.")
@click.option(
    "--judge", "judged", is_flag=True, help="Ask the judge about the pairs of the band, and count its errors."
)
@click.option("--judge-model", metavar="NAME", help="The judge's model.")
@click.option("--judge-url", metavar="URL", help="Its endpoint; default: OPENAI_BASE_URL, else OpenAI.")
@click.option(
    "--judge-object", metavar="MODULE:NAME", help="Ask this judge instead (as memfold judge --judge)."
)
@click.option(
    "--max-judged",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="At most this many, chosen at random.",
)
@json_option
def calibrate(
    model: str,
    dsn: str | None,
    tenant: str | None,
    pairs: Path | None,
    anchors: bool,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    html: Path | None,
    bucket: str | None,
    applied: bool,
    undo: bool,
    judged: bool,
    judge_model: str | None,
    judge_url: str | None,
    judge_object: str | None,
    max_judged: int,
    no_guard: bool,
    score: Any,
    method: Any,
    **options: Any,
) -> None:
    """Derive the thresholds of an embedding MODEL.

    Needs labelled pairs and an error budget; --pairs stores pairs from a file (or stdin: -) first. Nothing changes until
    --apply. It refuses, with the reason, if there are no contradictions among the pairs, too few pairs for the budget, or
    too much overlap to meet it; then it says what is possible. Needs the extra memfold[calibrate] and a member of
    memfold_owner.

    --anchors takes a minute and no labels: it embeds about 1,600 short texts that come with memfold, and sets the
    thresholds that let through as many of their pairs as those of all-MiniLM-L6-v2 do. A client does the same when it
    registers a model. It needs no extra.

    \b
    memfold calibrate text-embedding-3-small --anchors
    memfold calibrate all-MiniLM-L6-v2 --tenant acme --pairs labelled.jsonl --report report.html
    memfold calibrate all-MiniLM-L6-v2 --score best --tenant acme --replay notes --apply
    memfold calibrate all-MiniLM-L6-v2 --judge --judge-model gpt-5-mini
    memfold calibrate all-MiniLM-L6-v2 --undo
    """
    if pairs is not None and tenant is None:
        raise click.UsageError("--pairs needs --tenant, the owner of the pairs")
    if bucket is not None and tenant is None:
        raise click.UsageError("--replay needs --tenant, the owner of the bucket")
    if applied and score != "cosine" and bucket is None:
        raise click.UsageError(
            f"--score {score} --apply needs --replay, to see first what it would do to a bucket"
        )
    if judged and (judge_model is None) == (judge_object is None):
        raise click.UsageError("--judge needs --judge-model or --judge-object")
    if not judged and (judge_model or judge_url or judge_object):
        raise click.UsageError("--judge-model, --judge-url and --judge-object need --judge")
    where = resolve(dsn)
    tell = progress(f"embedding the anchors with {model}" if anchors else "")
    asks_embedder = anchors or pairs is not None
    embedder = make_embedder(embed_url, embed_model or model, embed_path) if asks_embedder else None
    with open_client(where, embedder and Embedder(embedder.embed, model), tenant) as client:
        if anchors:
            _by_anchors(client, model)
            return
    if undo:
        with _connected(where) as connection:
            row = connection.execute("select memfold.undo_calibration(%s)", [model]).fetchone()
        report({"model": model, "calibration_id": row[0] if row else None})
        say(f"undone; {model} now uses " + (f"calibration {row[0]}" if row and row[0] else "no calibration"))
        return
    from memfold.tools.calibrate import apply, save
    from memfold.tools.calibrate import calibrate as run

    if pairs is not None:
        tell("storing pairs")
        say(
            f"{load_pairs(where, str(tenant), model, pairs, embedder)} pairs of {file_name(pairs)} are stored"
        )
    asked = _judge(judge_model, judge_url, judge_object) if judged else None
    tell("choosing thresholds")
    try:
        made = run(
            where,
            model,
            method=method,
            score=score,
            tenant_id=tenant,
            guard=not no_guard,
            store=False,
            **options,
        )
    except CalibrationRefusedError as error:
        if error.attempt is not None:
            _write(error.attempt, html, " ".join(filter(None, [error.message + ".", error.detail])))
        raise
    if asked is not None:
        from memfold.tools.calibrate.judged import a_share, in_band, measure_judge

        tell("asking the judge")
        made = dataclasses.replace(made, judged=measure_judge(asked, a_share(in_band(made), max_judged)))
    made = save(where, made)
    _write(made, html)
    _tell(made)
    tell("replaying the bucket")
    replayed = _replay(where, tenant, bucket, made) if tenant and bucket else None
    _report(made, applied=applied, replayed=replayed)
    if applied and made.calibration_id is not None:
        apply(where, made.calibration_id)
        say(f"applied to {model}; undo it with: memfold calibrate {model} --undo")


def _connected(where: str) -> psycopg.Connection[Any]:
    return psycopg.connect(where, autocommit=True)


def _judge(name: str | None, url: str | None, plugged_in: str | None) -> Judge:
    return (
        plugged_in_judge(plugged_in) if name is None and plugged_in else OpenAIJudge(str(name), base_url=url)
    )


def _by_anchors(client: Memfold, model: str) -> None:
    row = client.measure_thresholds()
    rates = row["report"]["held_out"]["with_guard"]
    report({"model": model, **row})
    show(f"calibration {row['calibration_id']} of {model}, by cosine, method anchors")
    show(f"merge above {row['merge_threshold']:.6f}, judge from {row['judge_threshold']:.6f}")
    names = ("false_merge", "false_keep", "escalation", "merged_duplicates")
    show_lines(
        table_of(
            ["", "false merges", "false keeps", "escalation", "duplicates merged"],
            [["held-out anchors", *(f"{rates[name]['rate']:.1%}" for name in names)]],
        )
    )
    say(f"applied to {model}; undo it with: memfold calibrate {model} --undo")


def _write(made: Calibration, html: Path | None, refused: str | None = None) -> None:
    if html is not None:
        from memfold.tools.calibrate.report import write_html

        write_html(made, html, refused)
        say(f"{html} is written; it contains texts of pairs")


def _replay(where: str, tenant: str, bucket: str, made: Calibration) -> Replay:
    """Report what the calibration would do to a bucket's stream; the texts to read go to stdout."""
    from memfold.tools.calibrate.replay import replay

    found = replay(where, tenant, bucket, made.model, made.calibration_id)
    counts = found.counts()
    rows: list[list[object]] = [
        [name, *(counts[key].get(column, 0) for column in ("texts", "merged", "asked", "kept"))]
        for name, key in (("by the current rules", "now"), ("by this calibration", "then"))
    ]
    show_lines(table_of([f"bucket {bucket}", "texts", "merged", "asked", "kept"], rows))
    for outcome in ("merged", "asked"):
        for row in found.to_read(outcome):
            show(f"{outcome} {row.similarity or 0:.4f}: {row.content!r} and {row.other!r}")
    return found


def _report(made: Calibration, *, applied: bool, replayed: Replay | None) -> None:
    report(
        {
            "calibration_id": made.calibration_id,
            "model": made.model,
            "method": made.method,
            "merge_threshold": made.bands.merge,
            "judge_threshold": made.bands.judge,
            "applied": applied,
            "replayed": None if replayed is None else {replayed.bucket_id: replayed.counts()},
            **made.report(),
        }
    )


def _tell(made: Calibration) -> None:
    """Numbers go to stdout, warnings to stderr."""

    def shares(rates: list[Rate]) -> list[str]:
        return [str(rate) for rate in rates]

    budget = made.budget
    rows: list[list[object]] = [
        [
            "budget",
            f"{budget.max_false_merge:.1%}",
            f"{budget.max_false_keep:.1%}",
            f"{budget.max_escalation:.1%}",
            "",
        ]
    ]
    for guard in (True, False):
        measured = made.measured(guard=guard)
        name = f"held out, guard {'on' if guard else 'off'}"
        rows.append(
            [
                name,
                *shares(
                    [
                        measured.false_merge,
                        measured.false_keep,
                        measured.escalation,
                        measured.merged_duplicates,
                    ]
                ),
            ]
        )
    show(f"calibration {made.calibration_id} of {made.model}, by {made.kind}, method {made.method}")
    show(f"merge above {made.bands.merge:.6f}, judge from {made.bands.judge:.6f}")
    show_lines(table_of(["", "false merges", "false keeps", "escalation", "duplicates merged"], rows))
    classes: list[list[object]] = [
        [
            label,
            *(f"{counts[fate] / max(sum(counts.values()), 1):.1%}" for fate in ("merged", "asked", "kept")),
        ]
        for label, counts in made.measured().by_label.items()
    ]
    show_lines(table_of(["held out", "merged", "asked", "kept"], classes))
    if made.judged is not None:
        from memfold.tools.calibrate import Rate

        wrong = made.judged["wrong"]
        show(
            f"judge {made.judged['model']}: {Rate(wrong['count'], wrong['of'])} wrong of {made.judged['asked']} asked"
        )
        show_lines(
            table_of(
                ["label", "wrong", "unsure", "failed"],
                [
                    [
                        label,
                        str(Rate(counts["wrong"]["count"], counts["wrong"]["of"])),
                        counts["unsure"],
                        counts["failed"],
                    ]
                    for label, counts in made.judged["by_label"].items()
                ],
            )
        )
    for warning in made.warnings:
        say(f"warning: {warning}")
