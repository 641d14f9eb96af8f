"""intattention eval ppl: the numbers by hand, the runtime's logits, bad requests."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import smollm2_core

from intattention import LLM, _core
from intattention.eval import perplexity as module
from intattention.eval.opened_model import OpenedModel
from intattention.eval.perplexity import cut, perplexity

SHORT = 256  # tokens of the golden's short_ppl
MAX_FLOAT_CHANGE = 1e-5  # of perplexity; measured 2.4e-7
MAX_INDEX_CHANGE = 0.005  # measured 0.0013; the publication's softmax: 0.013
Run = Callable[..., tuple[int, str, str]]
KEYS = {
    "tokens", "ppl", "ppl_against", "kl_mean", "kl_p999", "top1_agreement", "nan_count",
    "worst_token_loss",
}  # fmt: skip


class Fixed:
    """Predicts rows of given probabilities, whatever it reads."""

    def __init__(self, rows: list[list[float]], chunk: int = 256) -> None:
        self.rows, self.chunk = np.log(np.array(rows, np.float32)), chunk

    def logits(self, ids: np.ndarray) -> Iterator[np.ndarray]:
        assert len(ids) == len(self.rows)
        for start in range(0, len(ids), self.chunk):
            yield self.rows[start : start + self.chunk] + 3  # logits, not log-probabilities


def window(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


def test_by_hand() -> None:
    """Ids 0, 1, 1: the first is not predicted, after the last nothing is."""
    ours = Fixed([[0.5, 0.5], [0.75, 0.25], [1e-9, 1]])
    other = Fixed([[0.25, 0.75], [0.5, 0.5], [1, 1e-9]])
    result = perplexity(ours, [window(0, 1, 1)], other)
    assert result.tokens == 2
    assert result.ppl == pytest.approx(math.sqrt(2 * 4))
    assert result.ppl_against == pytest.approx(math.sqrt(4 / 3 * 2))
    kl = [
        0.25 * math.log(0.5) + 0.75 * math.log(1.5),
        0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25),
    ]
    assert result.kl_mean == pytest.approx(sum(kl) / 2, abs=1e-6)
    assert result.kl_p999 == pytest.approx(kl[0] + 0.999 * (kl[1] - kl[0]), abs=1e-6)
    assert result.top1_agreement == 0.5  # the first of equals; then 1 against 0, and 0 and 0
    assert result.worst_token_loss == pytest.approx(math.log(4), abs=1e-6)
    assert result.nan_count == 0


def test_chunks_and_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split at every chunk boundary: the sums are those of one piece."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(7), 9).tolist()
    windows = [rng.integers(0, 7, 9).astype(np.int32) for _ in range(2)]
    whole = perplexity(Fixed(rows), windows, Fixed(rows[::-1]))
    for chunk in (1, 2, 4, 8, 9):
        monkeypatch.setattr(module, "CHUNK", chunk)
        calls: list[tuple[int, int]] = []
        parts = perplexity(
            Fixed(rows, chunk), windows, Fixed(rows[::-1], chunk),
            lambda done, total, calls=calls: calls.append((done, total)),
        )  # fmt: skip
        assert parts == whole
        assert calls[-1] == (16, 16)


def test_counts_what_is_not_finite() -> None:
    rows = [[0.5, 0.5], [math.nan, 0.5], [0.5, 0.5]]
    result = perplexity(Fixed(rows), [window(0, 1, 1)])
    assert result.nan_count == 1
    assert math.isnan(result.ppl)
    assert result.ppl_against is None


def test_cut() -> None:
    assert [x.tolist() for x in cut(range(7), 3, 0)] == [[0, 1, 2], [3, 4, 5]]
    assert [x.tolist() for x in cut(range(7), 3, 1)] == [[0, 1, 2]]
    with pytest.raises(ValueError, match="7 tokens, 9 are needed for 3 x 3"):
        cut(range(7), 3, 3)
    with pytest.raises(ValueError, match="2 tokens, 3 are needed"):
        cut(range(2), 3, 0)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the man on the hill in the rain " * 20, encoding="utf-8")
    return path


def test_command(run: Run, tiny_path: Path, text: Path) -> None:
    """Against the decoder's logits of one call, and the printed lines against the JSON."""
    arguments = ("eval", "ppl", tiny_path, "--text", text, "--ctx", 48, "--windows", 2)
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert set(result) == KEYS
    llm = LLM.load(tiny_path)
    decoder, ids = llm.decoder, llm.tokenizer.encode(text.read_text(), add_bos=False)
    losses = []
    for start in (0, 48):
        ids_window = np.array(ids[start : start + 48], np.int32)
        logits = decoder.forward(ids_window, decoder.new_cache(48), "all").astype(np.float64)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        losses.extend(-log_p[np.arange(47), ids_window[1:]])
    assert result["tokens"] == 94
    assert result["ppl"] == pytest.approx(math.exp(np.mean(losses)))
    assert result["worst_token_loss"] == pytest.approx(max(losses))
    assert result["ppl_against"] is None
    status, out, _ = run(*arguments)
    assert status == 0
    assert f"perplexity        {result['ppl']:.4f} (94 tokens, windows of 48)" in out


def test_float32_and_its_softmaxes(run: Run, tiny_path: Path, text: Path) -> None:
    """Without torch: the runtime against its own weights in float32, and other softmaxes there."""
    command = ("eval", "ppl", tiny_path, "--text", text, "--ctx", 48, "--against", "dequantized")

    def result(*more: object) -> dict[str, float]:
        status, out, err = run(*command, *more, "--json")
        assert (status, err) == (0, "")
        found: dict[str, float] = json.loads(out)
        return found

    same = result("--compute", "float32", "--softmax", "fp32")
    assert same["ppl"] == same["ppl_against"]
    assert same["kl_mean"] == 0
    index = result("--compute", "float32")
    runtime = result()
    paper = result("--compute", "float32", "--softmax", "paper")
    assert index["ppl_against"] == runtime["ppl_against"] == same["ppl"]
    assert 0 < index["kl_mean"] < runtime["kl_mean"]
    assert index["kl_mean"] < paper["kl_mean"]


def test_smollm2_has_transformers_perplexity() -> None:
    """Of the golden's 256 tokens: with float attention that of transformers, with ours close."""
    opened = OpenedModel(smollm2_core.gguf_path(), SHORT, _core.ThreadPool(2))
    golden = smollm2_core.golden()
    ids = golden["wikitext_ids"][:SHORT].tolist()
    for softmax, tolerance in (("fp32", MAX_FLOAT_CHANGE), ("index", MAX_INDEX_CHANGE)):
        found = perplexity(opened.float32(softmax), cut(ids, SHORT, 1))
        assert found.ppl == pytest.approx(float(golden["short_ppl"]), rel=tolerance)


def test_refuses(run: Run, tiny_path: Path, text: Path) -> None:
    command = ("eval", "ppl", tiny_path, "--text", text)
    for more, status, message in (
        (("--softmax", "paper"), 2, "only has 'index'; others need --compute float32"),
        (("--softmax", "gelu"), 2, "softmax is 'gelu'"),
        (("--compute", "int4"), 2, "'int4' is not one of"),
        (("--against", "double"), 2, "accepted: 'float', 'dequantized'"),
        (("--ctx", 4096), 1, "ctx is 4096"),
        (("--ctx", 128, "--windows", 99), 1, "12672 are needed for 99 x 128"),
    ):
        got, out, err = run(*command, *more)
        assert (got, out) == (status, "")
        assert message in err
    assert run("eval", "ppl", tiny_path, "--text", text.with_name("none.txt"))[0] == 1


def test_only_a_gguf_has_a_float_rival(run: Run, packed_path: Path, text: Path) -> None:
    status, _, err = run(
        "eval", "ppl", packed_path, "--text", text, "--ctx", 32, "--against", "float"
    )
    assert status == 1
    assert "only .gguf files" in err
