"""Hugging Face folders as checkpoints: config.json, safetensors, tokenizer.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from intattention._core import GROUP, PackedWeights
from intattention.checkpoint import FloatFormat, LogicalTensor, MetadataValue, TensorInfo
from intattention.dtypes import F32, U8
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.hf_quantized import read_scheme
from intattention.hf_texts import CONFIG, TEXTS, parse_json
from intattention.quantize import quantize
from intattention.safetensors_file import SafetensorsFile, StoredTensor

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOAT_TYPES = ("F32", "F16", "BF16")
QUANTIZED = "INT4"  # the type of a matrix that GPTQ or AWQ store in parts
PARTS = ("qweight", "qzeros", "scales", "g_idx")
MAX_TEXT_BYTES = 1 << 27


class HFFolder:
    """A checked folder; weights are mapped and quantised when they are asked for.

    ModelFileError if a file is missing or damaged, OSError if one cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._metadata = {name: _text(path / name) for name in TEXTS if (path / name).is_file()}
        if CONFIG not in self._metadata:
            self._fail(f"{CONFIG} is missing")
        self._scheme = read_scheme(path / CONFIG, parse_json(self, CONFIG))
        self._files = self._open()
        self._tensors = self._logical_tensors()

    @property
    def path(self) -> Path:
        """Where the folder is."""
        return self._path

    @property
    def format(self) -> str:
        """See ``Checkpoint.format``."""
        return f"safetensors, {len(self._shards())} files"

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """Name of a file -> its text."""
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Name -> tensor, in the files' order."""
        return self._tensors

    @property
    def losses(self) -> Mapping[str, float]:
        """See ``Checkpoint.losses``: none, GPTQ and AWQ keep their integers."""
        return {}

    def packed(self, name: str, float_format: FloatFormat, rotary_heads: int = 0) -> PackedWeights:
        """See ``Checkpoint.packed``; rows are in Hugging Face order anyway."""
        return self.matrix(name, float_format).pack()

    def matrix(self, name: str, float_format: FloatFormat) -> LogicalTensor:
        """The quantised matrix before packing. Errors as in ``Checkpoint.packed``."""
        if name in self._tensors and self._tensors[name].type == QUANTIZED:
            return self._quantized_matrix(name)
        raw, stored = self._read(name, 2)
        rows, columns = stored.shape
        if columns % GROUP != 0:
            raise UnsupportedModelError(
                f"{self._path}: tensor {name} has {columns} columns, expected a multiple of {GROUP}"
            )
        try:
            return quantize(
                raw.reshape(rows, -1), lambda part: to_float32(part, stored.dtype), float_format
            )
        except ValueError as error:
            raise ModelFileError(f"{self._path}: tensor {name}: {error}") from error

    def vector(self, name: str) -> F32:
        """See ``Checkpoint.vector``."""
        raw, stored = self._read(name, 1)
        values = to_float32(raw, stored.dtype)
        if not np.isfinite(values).all():
            self._fail(f"tensor {name} holds NaN or Inf")
        return values

    def _quantized_matrix(self, name: str) -> LogicalTensor:
        assert self._scheme is not None
        prefix = name.removesuffix("weight")
        qweight = self._array(prefix + "qweight", "I32")
        scales = self._array(prefix + "scales", "F16")
        qzeros = self._array(prefix + "qzeros", "I32") if prefix + "qzeros" in self._files else None
        self._check_group_order(prefix + "g_idx")
        try:
            return self._scheme.matrix(qweight, scales, qzeros)
        except ValueError as error:
            raise ModelFileError(f"{self._path}: tensor {name}: {error}") from error

    def _check_group_order(self, name: str) -> None:
        """GPTQ names the group of every input; only the plain order is built."""
        if self._scheme is None or name not in self._files:
            return
        raw, stored = self._read(name, 1, ("I32",))
        inputs = np.arange(stored.shape[0])
        group = self._scheme.group_size
        if (raw.view("<i4") != (inputs // group if group != -1 else 0 * inputs)).any():
            raise UnsupportedModelError(
                f"{self._path}: tensor {name} scatters the groups (desc_act), supported: groups of "
                f"{group} inputs in order"
            )

    def _array(self, name: str, dtype: str) -> NDArray[Any]:
        raw, stored = self._read(name, 2, (dtype,))
        return raw.view({"I32": "<i4", "F16": "<f2"}[dtype]).reshape(stored.shape)

    def _logical_tensors(self) -> dict[str, TensorInfo]:
        """What the files hold; the parts of a quantised matrix are one tensor."""
        stored = [t for file in self._shards() for t in file.tensors.values()]
        logical = {t.name: TensorInfo(t.name, t.dtype, t.shape, t.nbytes) for t in stored}
        if self._scheme is None:
            return logical
        for name in [name for name in logical if name.endswith(".qweight")]:
            prefix = name.removesuffix("qweight")
            parts = [logical.pop(prefix + part) for part in PARTS if prefix + part in logical]
            if len(parts[0].shape) != 2:
                self._fail(f"tensor {name} has the shape {parts[0].shape}, expected 2 dimensions")
            nbytes = sum(part.nbytes for part in parts)
            shape = self._scheme.shape(parts[0].shape)
            logical[prefix + "weight"] = TensorInfo(prefix + "weight", QUANTIZED, shape, nbytes)
        return logical

    def _read(
        self, name: str, n_dims: int, types: tuple[str, ...] = FLOAT_TYPES
    ) -> tuple[U8, StoredTensor]:
        file = self._files.get(name)
        if file is None:
            self._fail(f"tensor {name} is missing")
        stored = file.tensors[name]
        if len(stored.shape) != n_dims or 0 in stored.shape:
            self._fail(f"tensor {name} has the shape {stored.shape}, expected {n_dims} dimensions")
        if stored.dtype not in types:
            raise UnsupportedModelError(
                f"{self._path}: tensor {name} has the type {stored.dtype}; supported here: "
                + ", ".join(types)
            )
        return file.raw(name), stored

    def _shards(self) -> list[SafetensorsFile]:
        return list({id(file): file for file in self._files.values()}.values())

    def _open(self) -> dict[str, SafetensorsFile]:
        """Tensor name -> its file."""
        if (self._path / INDEX).is_file():
            return self._open_sharded()
        if not (self._path / SINGLE).is_file():
            self._fail(f"neither {SINGLE} nor {INDEX} is there")
        file = SafetensorsFile(self._path / SINGLE)
        return dict.fromkeys(file.tensors, file)

    def _open_sharded(self) -> dict[str, SafetensorsFile]:
        try:
            places = json.loads(_text(self._path / INDEX))["weight_map"].items()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._fail(f"{INDEX} has no weight_map: {error!r}")
        files: dict[str, SafetensorsFile] = {}
        located: dict[str, SafetensorsFile] = {}
        for name, shard in places:
            if not isinstance(shard, str) or shard != Path(shard).name or not shard:
                self._fail(f"{INDEX}: {name} lies in {shard!r}, expected a file of this folder")
            if shard not in files:
                if not (self._path / shard).is_file():
                    self._fail(f"{shard} is missing, which {INDEX} names")
                files[shard] = SafetensorsFile(self._path / shard)
            if name not in files[shard].tensors:
                self._fail(f"{shard} has no tensor {name}, which {INDEX} names")
            located[name] = files[shard]
        return located

    def _fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"{self._path}: {problem}")


def to_float32(raw: U8, dtype: str) -> F32:
    """Bytes ``[..., n * itemsize]`` of F32, F16 or BF16 -> float32 ``[..., n]``."""
    if dtype == "BF16":
        bits = raw.view("<u2").astype(np.uint32) << 16
        return bits.view(np.float32)
    return raw.view("<f4" if dtype == "F32" else "<f2").astype(np.float32)


def _text(path: Path) -> str:
    size = path.stat().st_size
    if size > MAX_TEXT_BYTES:
        raise ModelFileError(f"{path} has {size} bytes, at most {MAX_TEXT_BYTES}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path} is not UTF-8: {error.reason}") from error
