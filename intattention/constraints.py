"""Answers that must fit a JSON schema or a regular expression; needs the extra "constraints".

The grammars are llguidance's: after every token it says which ones may follow.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from intattention.tokenizer import TextTokenizer

Schema = Mapping[str, Any] | str
"""A JSON schema, as an object or as its text."""
# One spelling for every value, json.dumps's: with free white space small models write nothing else.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Constraint:
    """What one answer may still become. Not to be used from two threads at once."""

    def __init__(self, matcher: Any, vocab_size: int, eos_id: int, end_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._eos_id = eos_id
        self._end_ids = list(end_ids)

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, ``[vocab]``; those that end a turn where the text may end.

        ValueError if the grammar has become too complex to go on.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, count=self._vocab_size, bitorder="little").astype(np.bool_)
        mask[self._end_ids] = mask[self._eos_id]
        self._check()
        return mask

    def push(self, token: int) -> None:
        """Takes the token that was chosen, unless it ends the turn."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(f"the constraint fails: {self._matcher.get_error()}")


class Constraints:
    """Makes constraints for one tokenizer. The first one takes a moment, for its tables."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tables: Any = None

    def make(self, json_schema: Schema | None, regex: str | None) -> Constraint | None:
        """The constraint of these arguments, None if there are none.

        ValueError: both are given, or one is not valid or asks for what is not built in.
        RuntimeError: llguidance is not installed, or the model has no token that ends a turn.
        """
        if json_schema is not None and regex is not None:
            raise ValueError("json_schema and regex exclude each other")
        if json_schema is not None:
            return self._constraint("json_schema", _json_grammar(json_schema))
        if regex is not None:
            return self._constraint("regex", _regex_grammar(regex))
        return None

    def _constraint(self, what: str, grammar: str) -> Constraint:
        if self._tables is None:
            self._tables = _tables(self._tokenizer)
        matcher = _llguidance().LLMatcher(self._tables, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(f"{what}: {matcher.get_error()}")
        tokenizer = self._tokenizer
        return Constraint(
            matcher, tokenizer.vocab_size, _eos_id(tokenizer), sorted(tokenizer.end_ids)
        )


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise RuntimeError(f"{error}; pip install 'intattention[constraints]'") from error
    return llguidance


def _json_grammar(schema: Schema) -> str:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ValueError(f"json_schema is no JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise ValueError(f"json_schema is {schema!r}, expected an object")
    try:
        text = json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"json_schema is no JSON: {error}") from error
    grammar: str = _llguidance().LLMatcher.grammar_from_json_schema(text, JSON_STYLE)
    return grammar


def _regex_grammar(regex: str) -> str:
    if not isinstance(regex, str) or not regex:
        raise ValueError(f"regex is {regex!r}, expected a non-empty string")
    grammar: str = _llguidance().LLMatcher.grammar_from_regex(regex)
    return grammar


def _eos_id(tokenizer: TextTokenizer) -> int:
    if tokenizer.eos_id is not None and tokenizer.eos_id in tokenizer.end_ids:
        return tokenizer.eos_id
    if not tokenizer.end_ids:
        raise RuntimeError("the model has no token that ends a turn, so nothing can be constrained")
    return min(tokenizer.end_ids)


def _tables(tokenizer: TextTokenizer) -> Any:
    llguidance = _llguidance()
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Vocabulary(tokenizer)))


class _Vocabulary:
    """What llguidance wants to know of a tokenizer, in its words."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._encode = tokenizer.plain_encoder()
        self.eos_token_id = _eos_id(tokenizer)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [
            tokenizer.token_bytes(i, skip_special=False) for i in range(tokenizer.vocab_size)
        ]
        self.special_token_ids = [
            i for i in range(tokenizer.vocab_size) if not tokenizer.token_bytes(i)
        ]

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        return self._encode(text)
