"""Stop strings: no part of one is ever emitted."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from intattention.stop_strings import StopStrings


def plain_cut(text: str, stops: list[str]) -> str:
    return text[: min((i for i in map(text.find, stops) if i >= 0), default=len(text))]


@settings(max_examples=300)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=12),
)
def test_stop_strings_equal_cutting_the_whole_text(stops: list[str], pieces: list[str]) -> None:
    stop = StopStrings(stops)
    emitted: list[str] = []

    def feed() -> Iterator[str]:
        for piece in pieces:
            yield stop.push(piece)
            if stop.hit:
                return
        yield stop.flush()

    emitted = list(feed())
    text = "".join(pieces)
    # The earliest complete stop string wins; text before a later, longer one is never retracted.
    assert text.startswith("".join(emitted))
    assert not any(string in "".join(emitted) for string in stops)
    if len({len(string) for string in stops}) <= 1:
        assert "".join(emitted) == plain_cut(text, stops)
    assert stop.hit == any(string in text for string in stops)
