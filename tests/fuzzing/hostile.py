"""The words and numbers that values are drawn from, plausible and hostile."""

from __future__ import annotations

DIMENSIONS = 4
BYSTANDER = "bystander"
NAMES = ["Ann", "Bob", "Carol", "Dave", "Eve", "Zoë"]
TOWNS = ["Rome", "Oslo", "Bern", "Kyiv", "Lima", "Łódź"]
LIKES = ["tea", "green tea", "coffee", "chess", "a cat", "no cat", "12 cats", "13 cats", "Vim"]
WORDS: dict[str, list[str]] = {
    "memory_type": ["fact", "event", "fact"],
    "session_id": ["s1", "s2", "s3"],
    "predicate": ["lives_in", "likes", "works_at"],
    "subject": NAMES,
    "object": TOWNS + LIKES,
    "origin": ["observed", "inferred", "recalled", "labelled", "collected"],
    "preset": ["three_tier", "store_and_load", "hash_first", "replace_newer", "robotics"],
    "dedup": ["on", "on", "on", "off"],
    "canonicalizer": ["prose", "flat/1", "code/1", "exact/1", "prose/1"],
    "profile": ["prose/1", "flat/1", "code/1", "exact/1"],
    "key_fields": ["type", "subject", "predicate"],
    "metadata_keys": ["kind", "n"],
    "metadata_max": ["n", "kind"],
    "scope": ["predicate", "bucket"],
    "guard": ["on", "on", "off"],
    "on_ambiguous": ["judge", "synthesise", "review", "insert"],
    "on_merge": ["strengthen", "replace", "synthesise"],
    "on_refinement": ["replace", "escalate", "merge"],
    "on_judge_failure": ["keep", "replace"],
    "metadata_merge": ["merge", "first", "newest"],
    "conflict": ["newest_wins", "keep_existing", "keep_both", "review"],
    "cardinality": ["one", "many"],
    "protected_types": ["event", "rule"],
    "on_error": ["report", "abort"],
    "approval": ["judge", "review", "auto"],
    "verdict": ["duplicate", "refinement", "contradiction", "distinct"],
    "label": ["duplicate", "refinement", "contradiction", "distinct"],
    "worker": ["w1", "w2"],
    "tasks": [
        "plain",
        "decay",
        "counters",
        "syntheses",
        "runs",
        "embed",
        "links",
        "cycles",
        "clean",
        "sweep",
    ],
    "schedule": ["*/10 * * * *"],
    "idempotency_key": [f"k{i}" for i in range(12)],
    "source_turn_ids": [f"t{i}" for i in range(30)],
    "source_turn_id": [f"t{i}" for i in range(30)],
    "reason": ["because"],
    "error": ["timeout"],
}
INJECTIONS = [
    "'", '"', "''", '""', "\\", "\\'", "'; drop table memfold.memories; --",
    '"; drop schema memfold cascade; --',
    "$$", "$1", "$score$", "$q$ || (select 1) || $q$", ";", "--", "/*", "*/", "/* */",
    "%", "%%", "%s", "%I", "%L", "%1$I", "%n",
    "{}", "{", "}", '{"a"}', "{NULL}", "NULL", "null", "\\N", "\\.", "\\copy memories to '/tmp/x'",
    "\\! id", "\\x00",
    "search_path", "pg_catalog", "public", "memfold", "pg_temp", "memfold.memories", "memory_events",
    "postgres", "memfold_owner",
    "*", "**", "_", "default", "DEFAULT", "current_user", "now()", "a' or '1'='1", "a\" or \"1\"=\"1",
    "1) or (true", "(0,0)", "(,)",
    "select 1", "x'; set role postgres; --", "' || current_setting('memfold.tenant_id') || '",
    "memfold.tenant_id", "U&'\\0041'",
    "E'\\x41'", "<script>", "${jndi}", "..", "../../etc/passwd", "0x1F", "-0", "1e400", "NaN", "true",
    "[]", "[1,2]", "prose/2",
    "prose/", "/", "/1", "a/b/c", "PROSE/1", "type,subject", "judge;review", "a" * 63, "a" * 64,
    "é" * 256, "a" * 511, "a" * 512,
    "a" * 513, "é" * 257, "𝔘" * 128, "(", ")", "[", "]", "(?=a)", "a{1000}",
    "(((((((((a*)*)*)*)*)*)*)*)*)*$", "\\m\\M", "\\1",
    BYSTANDER,
]  # fmt: skip
PLANES: list[tuple[int, int]] = [
    (0x20, 0x7E), (0x01, 0x1F), (0x7F, 0x9F), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x52F),
    (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF),
    (0x2000, 0x206F), (0x2070, 0x2BFF),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFFFF),
    (0x10000, 0x1FFFF),
    (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0x50000, 0xDFFFF), (0xE0000, 0xE0FFF), (0xF0000, 0x10FFFF),
]  # fmt: skip
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2003\u2007\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
POINTS = ".,;:!?¡¿…。、！？-–—_*#@&%'\"«»()[]{}"
UNBELIEVABLE = [
    "\u202e" + "evil" + "\u202c", "\u2066\u2067\u2068\u2069", "a\u200db\u200cc", "👩‍👩‍👧‍👦🏳️‍🌈🇺🇳",
    "é" + "\u0301" * 300, "\u0344" * 50,
    "\ufdfa" * 40, "İıſẞß", "ΑΣ Σας ς", "ﬃ", "①②³", "ａｂｃ", "\U000e0061\U000e007f", "\U0010ffff",
    "\uffff\ufffe", "\ufffd", "\u0378",
    "\ud7a4".encode("utf-8", "replace").decode(), "가각\u1100\u1161\u11a8", "ก็็็็็็็", "Z̷̢͉̎a̶l̷g̸o̴" * 30,
    "\x01\x02\x7f", "\u2028", "𝕬𝖓𝖓 𝖑𝖎𝖐𝖊𝖘 𝖙𝖊𝖆",
]  # fmt: skip
DOUBLES = [
    "NaN", "Infinity", "-Infinity", "-0", "0", "1", "-1", "0.5", "2", "1e308", "-1e308",
    "1.7976931348623157e308", "4.9e-324",
    "2.2250738585072014e-308", "1e-300", "1e-17", "0.9999999999999999", "1.0000000000000002", "1e400",
    "-1e400", "1e-400", "x",
]  # fmt: skip
BIGINTS = [
    "0", "-1", "1", "2", "100", "1000", "1001", "10000", "10001", "100000", "100001", "16000", "16001",
    "2147483647", "2147483648",
    "-2147483648", "4294967296", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
    "1e3", "", "0x10",
]  # fmt: skip
INTERVALS = [
    "0", "1 second", "1 microsecond", "-1 microsecond", "-1 day", "999 milliseconds", "1 day",
    "1 day 1 microsecond", "1 month",
    "-1 month 30 days", "178000000 years", "-178000000 years", "9223372036854775807 microseconds",
    "2147483647 days",
    "-2147483648 days", "2147483647 months", "infinity", "-infinity", "178000001 years", "P1Y2M",
    "eternity", "90 days",
]  # fmt: skip
TIMES = [
    "infinity", "-infinity", "4713-01-01 00:00:00+00 BC", "4714-11-24 00:00:00+00 BC",
    "294276-12-31 23:59:59.999999+00",
    "294277-01-01 00:00:00+00", "1970-01-01", "epoch", "now", "tomorrow", "yesterday",
    "0001-01-01 00:00:00+00", "2026-02-30",
    "2999-01-01 00:00:00+00", "2000-01-01 00:00:00.000001+14", "2000-01-01 24:00:00-15:59", "infinite",
    "2025-06-01", "2025-01-01",
]  # fmt: skip
UUIDS = [
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "x",
    "",
    "{00000000000000000000000000000001}",
]
VECTORS = [
    "[0,0,0,0]", "[1,0,0]", "[1,0,0,0,0]", "[1]", "[NaN,0,0,0]", "[Infinity,0,0,0]",
    "[-Infinity,1,1,1]", "[1e-38,0,0,0]", "[1e-45,0,0,0]",
    "[1e-30,0,0,0]", "[1e-31,0,0,0]", "[3e38,3e38,3e38,3e38]", "[-3e38,3e38,0,0]", "[1e30,0,0,0]",
    "[1e31,0,0,0]", "[1e39,0,0,0]",
    "[1e-46,1,0,0]", "[]", "", "x", "[1,2", "[-1,0,0,0]", "[1e-20,1,0,0]",
    "[0.0001,-0.0001,1e-38,-1e-38]", "[3e38,1e-38,-0,0]",
]  # fmt: skip
JSONS = [
    "{}", "[]", "null", "1", '"x"', "true", "[[]]", "[{}]", "[1]", "[null]", '{"a": null}', '{"": ""}',
    '{"a": 1, "a": 2}',
    '{"n": 1e400}', '{"n": -1e-400}', '{"n": 1e131000}', '{"n": 1e200000}', '{"n": "1e400"}',
    '{"n": {"n": {"n": []}}}', '{"a": "\\u0000"}',
    '{"a": "\\ud800"}', '{"\\ud83d\\ude00": 1}', "{", "", "NaN", "{'a': 1}", '{"content": "x"}',
    '[{"content": "x"}]',
    '{"kind": "a", "n": 1}', '{"kind": ["a"], "n": "x"}', '{"kind": {"a": 1}, "n": 1e308}',
    '{"n": 9007199254740993}',
    '[{"content_a": "a", "content_b": "b", "label": "distinct"}]', '{"a": 5}', '{"m": 1.5}',
    '{"m": "x"}', '{"m": NaN}', '"\\ud83d\\ude00"',
]  # fmt: skip
