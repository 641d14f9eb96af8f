"""Vision: a small ViT, trained here on scikit-learn's digits; use_intattention()."""

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")

import torch.nn.functional as F  # noqa: E402

from intattention.integrations.sdpa import use_intattention  # noqa: E402
from intattention.integrations.transformers import register  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TRAINED_ON, EPOCHS, BATCH = 1000, 30, 50
MIN_TOP1 = 88.0  # of float; measured 91.6
MAX_CHANGE = 0.5  # points of top-1; measured 0.13


class Trained(NamedTuple):
    model: Any
    images: Any
    labels: Any

    def logits(self) -> Any:
        with torch.no_grad():
            return self.model(pixel_values=self.images).logits

    def top1(self) -> float:
        return 100 * (self.logits().argmax(1) == self.labels).float().mean().item()


@pytest.fixture(scope="module")
def digits() -> Trained:
    """A ViT of 4 layers; patches of 2 x 2, so 17 tokens; the 797 digits that it has not seen."""
    register()
    data = datasets.load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(data.target)
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=8, patch_size=2, num_channels=1, num_labels=10,
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).train()
    steps = EPOCHS * TRAINED_ON // BATCH
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(TRAINED_ON).split(BATCH):
            loss = F.cross_entropy(model(pixel_values=images[batch]).logits, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return Trained(model.eval(), images[TRAINED_ON:], labels[TRAINED_ON:])


def test_top1_of_a_vit(digits: Trained) -> None:
    top1 = {}
    for name in ("sdpa", "intattention", "intattention-paper"):
        digits.model.set_attn_implementation(name)
        top1[name] = digits.top1()
    print(top1)  # noqa: T201 - shown by pytest -s, and when it fails
    assert top1["sdpa"] > MIN_TOP1
    assert abs(top1["intattention"] - top1["sdpa"]) < MAX_CHANGE


def test_patch_is_the_registered_attention(digits: Trained) -> None:
    digits.model.set_attn_implementation("intattention")
    expected = digits.logits()
    digits.model.set_attn_implementation("sdpa")
    exact = digits.logits()
    with use_intattention():
        patched = digits.logits()
    assert patched.equal(expected)
    assert not patched.equal(exact)
    assert digits.logits().equal(exact)


class Attention(torch.nn.Module):
    """As timm writes it: one linear for q, k and v, then scaled_dot_product_attention."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x: Any, **more: Any) -> Any:
        batch, length, dim = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, dim // self.heads)
        out = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0), **more)
        return out.transpose(1, 2).reshape(batch, length, dim)


def close(ours: Any, exact: Any) -> bool:
    error = (ours - exact).abs().sum() / exact.abs().sum()
    return bool(0 < error < 0.03)


def test_a_module_of_ones_own() -> None:
    torch.manual_seed(0)
    module, x = Attention(96, 4).eval(), torch.randn(2, 50, 96)
    padding = torch.arange(50)[None, None, None] < torch.tensor([50, 31])[:, None, None, None]
    with torch.no_grad():
        for more in ({}, {"is_causal": True}, {"scale": 0.1}, {"attn_mask": padding}):
            exact = module(x, **more)
            with use_intattention():
                assert close(module(x, **more), exact)


def test_three_dimensions_and_groups() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(6, 20, 32), torch.randn(2, 40, 32), torch.randn(2, 40, 32)
    exact = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]
    causal = F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True, enable_gqa=True
    )
    with use_intattention():
        assert close(F.scaled_dot_product_attention(q, k, v, enable_gqa=True), exact)
        ours = F.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True, enable_gqa=True
        )
        assert close(ours, causal), "query 0 sees key 0, whatever the lengths"
        with pytest.raises(ValueError, match="need enable_gqa=True"):
            F.scaled_dot_product_attention(q, k, v)


def test_multihead_attention_does_not_slip_past() -> None:
    """Its fused path would not call scaled_dot_product_attention."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    x = torch.randn(2, 12, 64)
    padding = torch.arange(12)[None] >= torch.tensor([12, 7])[:, None]
    with torch.no_grad():
        for mask in (None, padding):
            exact = layer(x, src_key_padding_mask=mask)
            with use_intattention():
                ours = layer(x, src_key_padding_mask=mask)
            seen = ~padding if mask is not None else torch.ones(2, 12, dtype=torch.bool)
            assert close(ours[seen], exact[seen])


def test_refuses_and_restores() -> None:
    original, fused = F.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled()
    q = torch.randn(1, 2, 9, 16)
    for message, more in (
        ("dropout", {"dropout_p": 0.1}),
        ("adds a bias", {"attn_mask": torch.randn(9, 9)}),
        ("exclude each other", {"attn_mask": torch.ones(9, 9).bool(), "is_causal": True}),
    ):
        with use_intattention(), pytest.raises(ValueError, match=message):
            F.scaled_dot_product_attention(q, q, q, **more)
        assert F.scaled_dot_product_attention is original
        assert torch.backends.mha.get_fastpath_enabled() == fused
    with (
        pytest.raises(ValueError, match=r"'flash', known: 'intattention'"),
        use_intattention("flash"),
    ):
        pass
