"""Attention masks as runs of queries, each of which one call of the kernels can answer."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from intattention.dtypes import S64

OTHER, SAME, GROWS, SLIDES = range(4)  # how the visible keys change from one query to the next


class Visible(NamedTuple):
    """Query i sees the keys begin[i] .. end[i]-1; int64 ``[q_len]``. None if the two are equal."""

    begin: S64
    end: S64


class Run(NamedTuple):
    """Queries ``rows`` over ``keys``, with ``causal`` and ``window`` as attention() has them."""

    rows: slice
    keys: slice
    causal: bool
    window: int


def visible_all(q_len: int, kv_len: int) -> Visible:
    return Visible(np.zeros(q_len, np.int64), np.full(q_len, kv_len, np.int64))


def visible_causal(q_len: int, kv_len: int) -> Visible:
    """Query i sees the keys 0 .. i, as ``is_causal`` of scaled_dot_product_attention has it."""
    return Visible(np.zeros(q_len, np.int64), np.minimum(np.arange(1, q_len + 1), kv_len))


def visible_in(mask: NDArray[np.bool_]) -> Visible:
    """From a mask ``[q_len, kv_len]``, True where a query sees a key.

    ValueError if the keys that a query sees have a gap.
    """
    count = mask.sum(axis=1)
    begin = np.where(count > 0, mask.argmax(axis=1), 0)
    end = np.where(count > 0, mask.shape[1] - mask[:, ::-1].argmax(axis=1), 0)
    gaps = np.flatnonzero(end - begin != count)
    if len(gaps):
        i = gaps[0]
        raise ValueError(
            f"the attention mask lets query {i} see {count[i]} of the keys {begin[i]} to "
            f"{end[i] - 1}: integer attention needs visible keys without gaps"
        )
    return Visible(begin, end)


def runs(visible: Visible) -> Iterator[Run]:
    """Splits queries into runs, in order; those that see no key are in none.

    Keys are cut to what a run sees, so that padding cannot take part in a scale or move a block.
    """
    begin, end = visible
    steps = _steps(visible)
    row = 0
    while row < len(begin):
        last, window, kind = row, 0, steps[row]
        if kind != OTHER:
            last = _stretch(steps, row)
            if kind == GROWS and steps[last] == SLIDES:
                kind, last = SLIDES, _stretch(steps, last)
            if kind == SLIDES:
                window = int(end[last] - begin[last])
        if end[row] > begin[row]:
            keys = slice(int(begin[row]), int(end[last]))
            yield Run(slice(row, last + 1), keys, kind in (GROWS, SLIDES), window)
        row = last + 1


def _steps(visible: Visible) -> NDArray[np.int8]:
    """Of each query, how the next differs; OTHER after the last."""
    begin, end = visible
    steps = np.full(len(begin), OTHER, np.int8)
    moved_begin, moved_end = np.diff(begin), np.diff(end)
    empty = end == begin
    inside = ~(empty[:-1] | empty[1:])
    for kind, by_begin, by_end in ((SAME, 0, 0), (GROWS, 0, 1), (SLIDES, 1, 1)):
        steps[:-1][inside & (moved_begin == by_begin) & (moved_end == by_end)] = kind
    return steps


def _stretch(steps: NDArray[np.int8], row: int) -> int:
    """The query at which the steps cease to be of one kind."""
    return row + int((steps[row:] != steps[row]).argmax())
