"""Masks as runs of queries: every mask is covered exactly, in few runs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intattention.integrations.visible_keys import (
    Run,
    Visible,
    runs,
    visible_all,
    visible_causal,
    visible_in,
)


def covered(visible: Visible, kv_len: int) -> np.ndarray:
    """The mask that the runs stand for, with attention()'s meaning of causal and window."""
    mask = np.zeros((len(visible.begin), kv_len), bool)
    for run in runs(visible):
        q_len, keys = run.rows.stop - run.rows.start, run.keys.stop - run.keys.start
        for i in range(q_len):
            end = keys - q_len + i + 1 if run.causal else keys
            begin = max(0, end - run.window) if run.window else 0
            assert end > 0
            mask[run.rows.start + i, run.keys.start + begin : run.keys.start + end] = True
    return mask


def banded(q_len: int, kv_len: int, back: int, ahead: int) -> np.ndarray:
    """Query i sits at position kv_len - q_len + i and sees ``back`` keys back and some ahead."""
    distance = np.arange(kv_len) - (np.arange(q_len) + kv_len - q_len)[:, None]
    return (distance <= ahead) & (distance > -back)


@given(
    q_len=st.integers(1, 12),
    past=st.integers(0, 6),
    back=st.integers(1, 20),
    ahead=st.sampled_from([0, 0, 3, 100]),
    left=st.integers(0, 5),
    right=st.integers(0, 5),
)
def test_covers_padded_and_sliding_masks(q_len, past, back, ahead, left, right) -> None:
    mask = banded(q_len, q_len + past, back, ahead)
    mask[:, :left] = False
    mask[:, mask.shape[1] - right :] = False
    np.testing.assert_array_equal(covered(visible_in(mask), mask.shape[1]), mask)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=12))
def test_covers_any_ranges(ranges) -> None:
    keys = np.arange(8)
    mask = np.array([(keys >= min(pair)) & (keys < max(pair)) for pair in ranges])
    np.testing.assert_array_equal(covered(visible_in(mask), 8), mask)


def test_the_usual_masks_are_one_run() -> None:
    assert list(runs(visible_all(3, 9))) == [Run(slice(0, 3), slice(0, 9), False, 0)]
    assert list(runs(visible_causal(4, 4))) == [Run(slice(0, 4), slice(0, 4), True, 0)]
    chunk = banded(3, 9, 100, 0)
    assert list(runs(visible_in(chunk))) == [Run(slice(0, 3), slice(0, 9), True, 0)]
    sliding = banded(9, 9, 4, 0)
    assert list(runs(visible_in(sliding))) == [Run(slice(0, 9), slice(0, 9), True, 4)]
    decode = banded(1, 9, 4, 0)
    assert list(runs(visible_in(decode))) == [Run(slice(0, 1), slice(5, 9), False, 0)]


def test_padding_is_apart_from_the_sequence() -> None:
    left = banded(6, 6, 100, 0)
    left[:, :2] = False
    assert list(runs(visible_in(left))) == [Run(slice(2, 6), slice(2, 6), True, 0)]
    right = banded(6, 6, 100, 0)
    right[:, 4:] = False
    assert list(runs(visible_in(right))) == [
        Run(slice(0, 4), slice(0, 4), True, 0),
        Run(slice(4, 6), slice(0, 4), False, 0),
    ]


def test_refuses_gaps() -> None:
    mask = np.ones((3, 5), bool)
    mask[1, 2] = False
    with pytest.raises(ValueError, match="query 1 see 4 of the keys 0 to 4"):
        visible_in(mask)
