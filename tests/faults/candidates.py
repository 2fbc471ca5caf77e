"""What the clients submit: candidates for buckets with different rules."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from tests.support.queries import DB

MODEL = "m"
VERBS = ["likes", "loves", "enjoys", "prefers", "wants", "favours", "picks", "chooses"]
FORMS = ["The user {} a dark screen", "A dark screen is what the user {}"]
PARAPHRASES = [form.format(verb) for verb in VERBS for form in FORMS]
HOT = 6
PLACES = ["Stripe", "Lidl", "Siemens"]
SIDE = math.sqrt(1 - 0.88**2)
PAIRS = {
    "holds": [1.0, 0.0, 0.0, 0.0],
    "holds there": [0.88, SIDE, 0.0, 0.0],
    "is held": [0.88, -SIDE, 0.0, 0.0],
}
ADVERBS = ["often", "mostly", "surely", "simply", "mainly", "really", "just", "still"]
BUCKETS = ["hot", "para", "slots", "ask", "fold", "mess", "own", "timed"]


def turned(angle: float) -> dict[str, str]:
    """A vector at an angle (radians), as arguments of ingest: the cosine of two is that of the difference."""
    return {"embedding": json.dumps([math.cos(angle), math.sin(angle), 0, 0]), "embedding_model": MODEL}


def prepare(db: DB, tenant: str) -> None:
    """The rules of a tenant's buckets; safe to repeat."""
    db.execute("select memfold.register_embedding_model(%s, 4, 0.92, 0.85)", [MODEL])
    db.execute("select memfold.set_predicate('works_at', %s)", [tenant])
    for bucket in ("fold", "mess"):
        keeping(db, tenant, bucket)
    # vectors alone decide about paraphrases: words that keep texts apart are tested elsewhere
    db.execute("select memfold.set_policy(%s, 'para', guard => 'off')", [tenant])


def keeping(db: DB, tenant: str, bucket: str) -> None:
    """Store everything, so that there is something to merge."""
    db.execute(
        "select memfold.set_policy(%s, %s, merge_threshold => 1, judge_threshold => 1, on_ambiguous => 'insert')",
        [tenant, bucket],
    )


def candidate(choice: random.Random, tenant: str, number: int) -> dict[str, Any]:
    """A candidate for one of the buckets, each of which has its own rules."""
    bucket = choice.choices(BUCKETS, [10, 4, 3, 2, 1, 1, 4, 2])[0]
    said: dict[str, Any] = {"tenant_id": tenant, "bucket_id": bucket}
    match bucket:
        case "hot":
            spelling = choice.choice(
                ["Hot fact number {}", "  hot FACT number {}.", "hot fact   number {} !"]
            )
            said["content"] = spelling.format(choice.randrange(HOT))
        case "para":
            which = choice.randrange(len(PARAPHRASES))
            said |= {"content": PARAPHRASES[which], "subject": f"user {number // 400}"}
            if choice.random() < 0.85:
                said |= turned(0.02 * which)
        case "slots" | "timed":
            place = choice.choice(PLACES)
            said |= {"content": f"Ann works at {place}", "subject": f"Ann {choice.randrange(4)}"}
            said |= {"predicate": "works_at", "object": place}
            if bucket == "timed" and choice.random() < 0.3:
                said[choice.choice(["valid_from", "valid_until"])] = f"2025-06-{choice.randrange(1, 29):02}"
        case "ask":
            word, numbers = choice.choice(list(PAIRS.items()))
            said |= {"content": f"The box {word}", "subject": f"box {number // 60}"}
            said |= {"embedding": json.dumps(numbers), "embedding_model": MODEL}
        case "fold" | "mess":
            group = number // 300
            said["content"] = (
                f"the build of this project is {choice.choice(ADVERBS)} slow when it runs at night"
            )
            said |= {"subject": f"project {group}", "session_id": f"session {group}"}
            said |= turned(choice.uniform(0, 0.3))
        case _:
            said["content"] = f"Fact number {number} by itself"
            said["subject"] = f"thing {number % 50}"
    return said
