"""attn_implementation="intattention" in small random models of transformers."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers.masking_utils import create_causal_mask  # noqa: E402

import intattention  # noqa: E402
from intattention.integrations.torch_attention import METHODS, find_method  # noqa: E402
from intattention.integrations.transformers import forward_of, register  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

KERNELS = ["intattention", "intattention-paper", "quant_only"]
LENGTHS = [37, 5, 23, 40]
VOCAB = 97
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCAB,
}
GROUPED: dict[str, Any] = SIZES | {"num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 1}
CAUSAL = SimpleNamespace(is_causal=True)


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    register()


def build(config: Any, kind: Any = transformers.AutoModelForCausalLM) -> Any:
    torch.manual_seed(0)
    return kind.from_config(config).eval()


def llama(**more: Any) -> Any:
    return build(transformers.LlamaConfig(**GROUPED | more))


def qwen2(window: int) -> Any:
    config = transformers.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=window, max_window_layers=1
    )
    assert config.layer_types == ["full_attention", "sliding_attention"]
    return build(config)


def qkv(q_len: int = 30, kv_len: int = 30, d: int = 32, heads: int = 4, batch: int = 1) -> Any:
    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, heads, q_len, d), (batch, 2, kv_len, d), (batch, 2, kv_len, d))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def padded(side: str) -> tuple[Any, Any]:
    """Ids and mask ``[4, 40]``."""
    torch.manual_seed(1)
    columns = torch.arange(max(LENGTHS))
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = columns >= max(LENGTHS) - lengths if side == "left" else columns < lengths
    return torch.randint(2, VOCAB, mask.shape) * mask, mask.long()


def compare_alone(name: str, sequences: list[slice]) -> Callable[..., Any]:
    """An attention that requires of every call that each sequence alone gives the same bits.

    sequences: the positions of each sequence's tokens; those of generated ones follow.
    """
    attention = forward_of(find_method(name))

    def check(module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
        out, _ = attention(module, q, k, v, mask, **more)
        check.calls += 1
        for i, tokens in enumerate(sequences):
            decode = q.shape[2] == 1
            stop = k.shape[2] if tokens.stop == max(LENGTHS) else tokens.stop
            keys = slice(tokens.start, stop)
            one = q[i : i + 1] if decode else q[i : i + 1, :, keys]
            alone, _ = attention(
                module, one, k[i : i + 1, :, keys], v[i : i + 1, :, keys], None, **more
            )
            assert torch.equal(out[i : i + 1] if decode else out[i : i + 1, keys], alone)
        return out, None

    check.calls = 0
    return check


@pytest.fixture
def use_check() -> Any:
    """use_check(name, sequences): registers such an attention as "compare_alone"."""

    def use(name: str, sequences: list[slice]) -> Any:
        check = compare_alone(name, sequences)
        transformers.AttentionInterface.register("compare_alone", check)
        transformers.AttentionMaskInterface.register(
            "compare_alone", transformers.masking_utils.sdpa_mask
        )
        return check

    return use


@pytest.mark.parametrize("name", list(METHODS))
def test_close_to_float(name: str) -> None:
    model = llama()
    ids = torch.randint(VOCAB, (2, 50))
    with torch.no_grad():
        exact = model(ids).logits
        model.set_attn_implementation(name)
        ours = model(ids).logits
    error = (ours - exact).abs().sum() / exact.abs().sum()
    assert 0 < error < 0.05


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batch_equals_each_alone(name: str, side: str, use_check: Any) -> None:
    most = max(LENGTHS)
    sequences = [slice(most - n, most) if side == "left" else slice(0, n) for n in LENGTHS]
    model = llama()
    check = use_check(name, sequences)
    model.set_attn_implementation("compare_alone")
    ids, mask = padded(side)
    with torch.no_grad():
        model(ids, attention_mask=mask)
    assert check.calls == 2


def test_generating_from_a_padded_batch(use_check: Any) -> None:
    """With the cache (one query, many keys): the same bits in attention, the same tokens."""
    most = max(LENGTHS)
    model = llama()
    check = use_check("intattention", [slice(most - n, most) for n in LENGTHS])
    model.set_attn_implementation("compare_alone")
    ids, mask = padded("left")
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    together = model.generate(ids, attention_mask=mask, **options)[:, most:]
    assert check.calls == 12
    model.set_attn_implementation("intattention")
    for i, n in enumerate(LENGTHS):
        alone = model.generate(ids[i : i + 1, most - n :], **options)[0, n:]
        assert together[i].tolist() == alone.tolist()


@pytest.mark.parametrize("name", KERNELS)
def test_is_the_librarys_attention(name: str) -> None:
    q, k, v = qkv()
    out, weights = forward_of(find_method(name))(CAUSAL, q, k, v, None, scaling=0.2)
    softmax = {"intattention": "index", "intattention-paper": "paper"}.get(name, name)
    expected = intattention.attention(
        *(x[0].numpy() for x in (q, k, v)), causal=True, scale=0.2, softmax=softmax
    )
    np.testing.assert_array_equal(out[0].transpose(0, 1).numpy(), expected)
    assert weights is None


def test_paper_is_the_publication() -> None:
    """Output of the published simulation, to its float16."""
    golden = np.load(Path(__file__).parent / "data" / "paper_golden.npz")
    cases = [name[0] for name in golden.files if name.endswith("_v")]
    assert cases
    for case in cases:
        module = SimpleNamespace(is_causal=bool(golden[f"{case}_causal"]))
        arrays = [torch.from_numpy(golden[f"{case}_{name}"])[None] for name in "qkv"]
        floor = forward_of(find_method("intattention-paper-floor"))
        out = floor(module, *arrays, None)[0][0].transpose(0, 1)
        np.testing.assert_array_equal(out.numpy().astype(np.float16), golden[f"{case}_out"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float(dtype: Any) -> None:
    halves = [x.to(dtype) for x in qkv()]
    attention = forward_of(find_method("intattention"))
    out, _ = attention(CAUSAL, *halves, None)
    expected, _ = attention(CAUSAL, *(x.float() for x in halves), None)
    assert out.dtype == dtype
    assert torch.equal(out, expected.to(dtype))
    model = llama().to(dtype)
    model.set_attn_implementation("intattention")
    assert model(torch.arange(9)[None]).logits.isfinite().all()


def test_head_dim_that_is_no_multiple_of_16() -> None:
    """Filled up with zeros; the scale stays that of the true head_dim."""
    q, k, v = qkv(d=24)
    out, _ = forward_of(find_method("intattention"))(CAUSAL, q, k, v, None)
    exact = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    assert out.shape == exact.shape
    assert (out - exact).abs().sum() < 0.03 * exact.abs().sum()


@pytest.mark.parametrize("length", [9, 30])
def test_sliding_window(length: int) -> None:
    """Layer 1 sees 8 keys; the whole model stays close to float, with and without the cache."""
    model = qwen2(window=8)
    ids = torch.randint(2, VOCAB, (2, length))
    with torch.no_grad():
        exact = model(ids).logits
        model.set_attn_implementation("intattention")
        whole = model(ids).logits
        cache = transformers.DynamicCache(config=model.config)
        parts = [model(part, past_key_values=cache).logits for part in ids.split(4, dim=1)]
    for ours in (whole, torch.cat(parts, 1)):
        assert (ours - exact).abs().sum() < 0.05 * exact.abs().sum()


def test_sliding_window_is_the_kernels() -> None:
    q, k, v = qkv()
    distance = torch.arange(30)[:, None] - torch.arange(30)
    mask = ((distance >= 0) & (distance < 8))[None, None]
    out, _ = forward_of(find_method("intattention"))(CAUSAL, q, k, v, mask, sliding_window=8)
    expected = intattention.attention(*(x[0].numpy() for x in (q, k, v)), causal=True, window=8)
    np.testing.assert_array_equal(out[0].transpose(0, 1).numpy(), expected)


def test_prompt_in_parts() -> None:
    """The masks of a filled cache: the second half of a prompt as in one piece."""
    model = llama()
    model.set_attn_implementation("intattention")
    ids = torch.randint(VOCAB, (1, 40))
    with torch.no_grad():
        whole = model(ids).logits
        past = model(ids[:, :23]).past_key_values
        rest = model(ids[:, 23:], past_key_values=past).logits
    torch.testing.assert_close(rest, whole[:, 23:], atol=1e-4, rtol=0)


def test_static_cache() -> None:
    """Its empty places are masked, or left out where no mask is given."""
    model = llama()
    model.set_attn_implementation("intattention")
    ids = torch.randint(2, VOCAB, (1, 20))
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    expected = model.generate(ids, **options)
    assert model.generate(ids, cache_implementation="static", **options).equal(expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_bidirectional_padded_batch(side: str) -> None:
    model = build(transformers.BertConfig(**SIZES), transformers.AutoModel)
    ids, mask = padded(side)
    with torch.no_grad():
        exact = model(ids, attention_mask=mask).last_hidden_state
        model.set_attn_implementation("intattention")
        ours = model(ids, attention_mask=mask).last_hidden_state
        other = model(ids + 3 * (1 - mask), attention_mask=mask).last_hidden_state
    seen = mask.bool()
    assert 0 < (ours - exact)[seen].abs().sum() < 0.02 * exact[seen].abs().sum()
    assert other[seen].equal(ours[seen]), "padding matters"


def test_refuses() -> None:
    attention = forward_of(find_method("intattention"))
    q, k, v = qkv()
    causal = torch.ones(30, 30, dtype=torch.bool).tril()
    two_kinds = torch.stack([causal, torch.ones_like(causal)] * 2)[None]
    refused: list[tuple[str, Any, dict[str, Any]]] = [
        ("dropout", None, {"dropout": 0.1}),
        ("softcap", None, {"softcap": 30.0}),
        ("position bias", None, {"position_bias": torch.zeros(1)}),
        ("output_attentions", None, {"output_attentions": True}),
        ("adds a bias", torch.full((1, 1, 30, 30), 0.5), {}),
        ("differs between heads", two_kinds, {}),
        ("without gaps", torch.eye(30).bool()[None, None].logical_not(), {}),
        ("window of 8 keys came without", None, {"sliding_window": 8}),
        (r"\(3, 1, 30, 30\), which does not fit 1 sequences", causal.expand(3, 1, 30, 30), {}),
        ("30 queries and 30 keys", torch.ones(1, 1, 30, 31, dtype=torch.bool), {}),
    ]  # fmt: skip
    for message, mask, more in refused:
        with pytest.raises(ValueError, match=message):
            attention(CAUSAL, q, k, v, mask, **more)
    with pytest.raises(ValueError, match="on meta: integer attention runs on the CPU"):
        attention(CAUSAL, q.to("meta"), k, v, None)
    with pytest.raises(ValueError, match="float64"):
        attention(CAUSAL, q.double(), k, v, None)
    with pytest.raises(ValueError, match="no multiple of 2 KV heads"):
        attention(CAUSAL, q[:, :3], k, v, None)
    with pytest.raises(ValueError, match="NaN"):
        attention(CAUSAL, q, k.index_fill(2, torch.tensor([3]), float("nan")), v, None)


def test_float_mask_that_only_hides_is_a_mask() -> None:
    attention = forward_of(find_method("intattention"))
    q, k, v = qkv()
    hidden = torch.ones(30, 30, dtype=torch.bool).triu(1)
    expected, _ = attention(CAUSAL, q, k, v, None)
    for low in (-torch.inf, torch.finfo(torch.float32).min):
        mask = torch.zeros(1, 1, 30, 30).masked_fill(hidden, low)
        assert attention(CAUSAL, q, k, v, mask)[0].equal(expected)


def test_refuses_what_a_model_asks_for() -> None:
    model = llama(attention_dropout=0.1)
    model.set_attn_implementation("intattention")
    ids = torch.arange(5)[None]
    with pytest.raises(ValueError, match="output_attentions"):
        model(ids, output_attentions=True)
    with pytest.raises(NotImplementedError, match="no gradient"):
        model(ids).logits.sum().backward()
    with pytest.raises(ValueError, match="dropout"):
        model.train()(ids)


def test_refuses_models_with_an_attention_of_their_own() -> None:
    config = transformers.BloomConfig(vocab_size=VOCAB, hidden_size=64, n_layer=1, n_head=4)
    kind = transformers.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="intattention")
    with pytest.raises(ValueError, match="BloomConfig do not let attention be replaced"):
        model(torch.arange(5)[None])


@pytest.mark.parametrize("length", [9, 40])
def test_other_architectures(length: int) -> None:
    """A window that looks ahead too; a model whose file is named after its family; no RoPE."""
    ids = torch.randint(3, VOCAB, (2, length))
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    for config in (
        transformers.ModernBertConfig(**SIZES, local_attention=8, **tokens),
        transformers.Gemma3TextConfig(**GROUPED, head_dim=32, sliding_window=8),
        transformers.OPTConfig(
            vocab_size=VOCAB, hidden_size=64, ffn_dim=64, num_hidden_layers=2,
            num_attention_heads=4, word_embed_proj_dim=64,
        ),
    ):  # fmt: skip
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config, attn_implementation="intattention")
        with torch.no_grad():
            ours = model.eval()(ids).last_hidden_state
            model.set_attn_implementation("eager")
            exact = model(ids).last_hidden_state
        assert 0 < (ours - exact).abs().sum() < 0.05 * exact.abs().sum(), type(config).__name__


def test_mask_is_made_for_the_registered_names() -> None:
    """Else transformers hands attention the mask of the tokenizer, as it does to unknown names."""
    config = llama().config
    for name in METHODS:
        config._attn_implementation = name
        mask = create_causal_mask(
            config=config,
            inputs_embeds=torch.zeros(4, 40, 64),
            attention_mask=padded("left")[1],
            past_key_values=None,
        )
        assert mask.shape == (4, 1, 40, 40)
