"""The rotation that a config.json asks for: ``rope_parameters``, or the older ``rope_scaling``."""

from dataclasses import replace

from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.metadata import Metadata
from intattention.models.limits import MAX_CONTEXT
from intattention.models.rope import Rope, RopeKind, yarn_mscale

KINDS: tuple[RopeKind, ...] = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def read_rope(meta: Metadata, head_dim: int) -> tuple[Rope, int, int]:
    """(rotation, default context, largest context)."""
    key, scaling = _scaling(meta)
    kind = _kind(key, scaling)
    trained = meta.integer("max_position_embeddings", 1, MAX_CONTEXT, 2048)
    part = _either(scaling, meta).real("partial_rotary_factor", 1e-3, 1, 1.0)
    rope = Rope(
        theta=_either(scaling, meta).real("rope_theta", 1, 1e12, 10000.0),
        dim=int(head_dim * part),
    )
    if kind == "default":
        return rope, trained, trained
    # Phi writes the original length beside the dictionary, and there it counts
    original = meta.integer("original_max_position_embeddings", 1, MAX_CONTEXT, 0) or (
        scaling.integer("original_max_position_embeddings", 1, MAX_CONTEXT, trained)
    )
    rope = replace(rope, kind=kind, original_context=original)
    if kind == "longrope":
        return _longrope(rope, scaling, trained), trained, trained
    default = max(1.0, trained / original) if kind == "yarn" else None
    rope = replace(rope, factor=scaling.real("factor", 1, 1e6, default))
    if kind == "linear":
        return rope, trained, trained
    if kind == "dynamic":
        rope = replace(rope, original_context=trained)
        return rope, trained, int(trained * rope.factor)
    if kind == "yarn":
        longest = max(trained, int(original * rope.factor))
        return _yarn(rope, scaling), longest, longest
    low = scaling.real("low_freq_factor", 1e-3, 1e6)
    high = scaling.real("high_freq_factor", 1e-3, 1e6)
    if not low < high:
        raise ModelFileError(f"{scaling.path}: low_freq_factor {low} >= high_freq_factor {high}")
    return replace(rope, low_freq_factor=low, high_freq_factor=high), trained, trained


def _kind(key: str, scaling: Metadata) -> RopeKind:
    stated = scaling.values.get("rope_type") or scaling.values.get("type") or "default"
    for kind in KINDS:
        if stated == kind:
            return kind
    raise UnsupportedModelError(
        f"{scaling.path}: {key}.rope_type is {stated!r}, supported: {', '.join(KINDS)}"
    )


def _scaling(meta: Metadata) -> tuple[str, Metadata]:
    for key in ("rope_parameters", "rope_scaling"):
        value = meta.values.get(key)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise ModelFileError(f"{meta.path}: {key} is {value!r}, expected an object")
        nested = [name for name, inner in value.items() if isinstance(inner, dict)]
        if nested:
            raise UnsupportedModelError(
                f"{meta.path}: {key} differs by layer type ({', '.join(nested)}), "
                "supported: one for all layers"
            )
        return key, Metadata(meta.path, value)
    return "rope_scaling", Metadata(meta.path, {})


def _either(first: Metadata, second: Metadata) -> Metadata:
    return Metadata(first.path, {**second.values, **first.values})


def _yarn(rope: Rope, scaling: Metadata) -> Rope:
    attention = scaling.real("attention_factor", 1e-3, 1e3, 0.0)
    if not attention:
        mscale = scaling.real("mscale", 0, 1e3, 0.0)
        all_dim = scaling.real("mscale_all_dim", 0, 1e3, 0.0)
        attention = yarn_mscale(rope.factor)
        if mscale and all_dim:
            attention = yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, all_dim)
    return replace(
        rope,
        attention_factor=attention,
        beta_fast=scaling.real("beta_fast", 1e-3, 1e6, 32.0),
        beta_slow=scaling.real("beta_slow", 1e-3, 1e6, 1.0),
        truncate=scaling.flag("truncate", default=True),
    )


def _longrope(rope: Rope, scaling: Metadata, trained: int) -> Rope:
    attention = scaling.real("attention_factor", 1e-3, 1e3, 0.0)
    return replace(
        rope,
        factor=scaling.real("factor", 1e-3, 1e6, trained / rope.original_context),
        attention_factor=attention or None,
        short_factors=_factors(scaling, "short_factor", rope.dim // 2),
        long_factors=_factors(scaling, "long_factor", rope.dim // 2),
    )


def _factors(scaling: Metadata, key: str, count: int) -> tuple[float, ...]:
    values = scaling.reals(key, 1e-6, 1e6)
    if len(values) != count:
        raise ModelFileError(f"{scaling.path}: {key} has {len(values)} numbers, expected {count}")
    return tuple(values)
