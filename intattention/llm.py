"""The LLM class: load a model, complete a prompt, answer a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, overload

from intattention import cuda, models
from intattention._core import DecoderConfig, ThreadPool
from intattention.chat_template import Message, Tool
from intattention.checkpoint import FloatFormat, requantised_note
from intattention.context import checked_context, fitting_context
from intattention.errors import ModelFileError, UnsupportedModelError
from intattention.model_file import open_model_file
from intattention.model_registry import find_model
from intattention.sampling import Sampler, SamplingParams
from intattention.session import AnyDecoder, Clock, Session
from intattention.stats import GenerationStats
from intattention.stop_strings import StopStrings, checked_stop
from intattention.tokenizer import TextStream, TextTokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class GenerateOptions(TypedDict, total=False):
        """Keyword arguments that ``generate`` and ``chat`` share; see ``LLM.generate``."""

        max_new_tokens: int
        temperature: float
        top_p: float
        top_k: int
        min_p: float
        repetition_penalty: float
        seed: int | None
        stop: str | Sequence[str] | None


class LLM:
    """A loaded model with one conversation's cache. Not to be used from two threads at once.

    The cache outlives a call: the next prompt reuses the longest beginning that it shares with
    the tokens already in there, so a growing chat only computes what is new.
    """

    def __init__(
        self, decoder: AnyDecoder, tokenizer: TextTokenizer, pool: ThreadPool, context: int
    ) -> None:
        self._decoder = decoder
        self._pool = pool
        self._session = Session(decoder, context)
        self._ticket = 0
        self.tokenizer = tokenizer
        self.last_stats = GenerationStats()
        self.notes: list[str] = []
        """What loading decided and a person may want to know, in sentences."""
        self.prefill_progress: Callable[[int, int], None] | None = None
        """Called with (done, total) prompt tokens after each chunk of 256."""

    @classmethod
    def load(
        cls,
        path_or_name: str | Path,
        threads: int = 0,
        cpus: Sequence[int] | None = None,
        ctx: int | None = None,
        progress: models.Progress | None = None,
        weight_format: FloatFormat = "w4g32a",
        device: Literal["cpu", "cuda"] = "cpu",
    ) -> LLM:
        """Loads a .gguf or .iatt file, a Hugging Face folder, a model that is installed under a
        name, or one of the Hugging Face hub ("owner/name"), which is downloaded first.

        ``threads`` 0: one per CPU of ``cpus``, or per performance core. ``cpus``: pin to these.
        ``ctx``: tokens the cache may hold, at most the model's own limit; memory is taken as it
        fills. None: the model's context, or what fits into memory if that is less. A scaling of
        the rotation that depends on the length (dynamic NTK, longrope) is that of ``ctx`` tokens.
        ``progress(done, total, name)`` is called after each tensor. ``weight_format``: what float
        weights become, w8g32 costs twice the memory of w4g32a. ``device``: "cuda" runs the model on
        the GPU, with the same results (``intattention.cuda.available()`` says whether that works).

        ModelNotFoundError: neither file nor name. ModelFileError: a damaged file.
        UnsupportedModelError: an architecture, tensor type or tokenizer that is not built in.
        ValueError: ``ctx``, ``threads``, ``cpus`` or ``device`` out of range. RuntimeError: no GPU
        that this build can use.
        """
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device is {device!r}, expected 'cpu' or 'cuda'")
        if device == "cuda":
            cuda.check_available()
        checkpoint = open_model_file(find_model(path_or_name))
        model = models.find(checkpoint)
        if ctx is not None:
            checked_context(ctx, model)
        tokenizer = TextTokenizer(checkpoint)
        if tokenizer.vocab_size > model.vocab_size:
            raise ModelFileError(
                f"{checkpoint.path}: {tokenizer.vocab_size} tokens, "
                f"but the model's vocabulary is {model.vocab_size}"
            )
        pool = ThreadPool(threads, cpus)
        parts = model.read(checkpoint, progress, weight_format)
        if device == "cuda":
            context = cuda.fitting_context(model) if ctx is None else ctx
            decoder: AnyDecoder = cuda.decoder(model.decoder(checkpoint, parts, pool, context))
        else:
            context = fitting_context(model, checkpoint) if ctx is None else ctx
            decoder = model.decoder(checkpoint, parts, pool, context)
        llm = cls(decoder, tokenizer, pool, context)
        if checkpoint.losses:
            llm.notes.append(requantised_note(checkpoint.losses))
        if ctx is None and context < model.context:
            llm.notes.append(
                f"the context is {context} of {model.context} tokens, what fits into memory"
            )
        return llm

    @property
    def config(self) -> DecoderConfig:
        """Sizes of the model, in Hugging Face words."""
        return self._decoder.config

    @property
    def decoder(self) -> AnyDecoder:
        """The core's model; a cache of one's own keeps out of the conversation."""
        return self._decoder

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._session.context

    @property
    def nbytes(self) -> int:
        """Bytes of packed weights (mapped ones too) and cache held now."""
        return self._decoder.nbytes + self._session.nbytes

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self._pool.threads

    @overload
    def generate(
        self, prompt: str, *, stream: Literal[False] = False, **options: Unpack[GenerateOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: str, *, stream: Literal[True], **options: Unpack[GenerateOptions]
    ) -> Iterator[str]: ...
    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
    ) -> str | Iterator[str]:
        """Continues ``prompt``: the whole text, or with ``stream`` an iterator of its pieces.

        Ends at a token that ends a turn, before a stop string, after ``max_new_tokens``, or when
        the context is full; ``last_stats.finish_reason`` says which. The sampling arguments are
        those of ``SamplingParams``; temperature 0 is greedy and deterministic.

        ValueError: an empty prompt or an argument out of range. ContextOverflowError: the prompt
        leaves no room for an answer. An iterator that is continued after another call on this LLM
        raises RuntimeError. After KeyboardInterrupt the LLM can be used again.
        """
        if not prompt:
            raise ValueError("the prompt is empty")
        params = SamplingParams(temperature, top_p, top_k, min_p, repetition_penalty, seed)
        ids = self.tokenizer.encode(prompt)
        return self._run(ids, params, max_new_tokens, stop, stream)

    @overload
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> str: ...
    @overload
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> Iterator[str]: ...
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
    ) -> str | Iterator[str]:
        """The assistant's answer to ``messages`` ({"role": ..., "content": ...}, oldest first).

        The model file's chat template makes the prompt, with ``tools`` if it knows them;
        everything else is as in ``generate``.
        UnsupportedModelError if the model has no chat template. The template is the file's own
        text: control tokens that a message's content spells out are recognised as such.
        """
        params = SamplingParams(temperature, top_p, top_k, min_p, repetition_penalty, seed)
        if self.tokenizer.chat_template is None:
            raise UnsupportedModelError("the model has no chat template; use generate()")
        text = self.tokenizer.chat_template.render(messages, tools=tools)
        ids = self.tokenizer.encode(text, add_bos=False)
        return self._run(ids, params, max_new_tokens, stop, stream, at_start=True)

    def reset(self) -> None:
        """Forgets the conversation and frees the cache."""
        self._ticket += 1
        self._session = Session(self._decoder, self.context)

    def _run(
        self,
        ids: list[int],
        params: SamplingParams,
        max_new_tokens: int,
        stop: str | Sequence[str] | None,
        stream: bool,
        at_start: bool = False,
    ) -> str | Iterator[str]:
        if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int):
            raise ValueError(f"max_new_tokens is {max_new_tokens!r}, expected an integer >= 0")
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens is {max_new_tokens}, expected >= 0")
        if not ids:
            raise ValueError("the prompt has no tokens")
        self._ticket += 1
        stats = GenerationStats(prompt_tokens=len(ids), reused_tokens=self._session.rewind(ids))
        self.last_stats = stats
        sampler = Sampler(params, seen=ids)
        tokens = self._tokens(ids, sampler, max_new_tokens, stats, self._ticket)
        text = self.tokenizer.stream(at_start=at_start)
        pieces = self._pieces(tokens, text, StopStrings(checked_stop(stop)), stats)
        return pieces if stream else "".join(pieces)

    def _tokens(
        self,
        ids: list[int],
        sampler: Sampler,
        max_new_tokens: int,
        stats: GenerationStats,
        ticket: int,
    ) -> Iterator[int]:
        """New tokens without the one that ends the turn; fills ``stats``."""
        if max_new_tokens == 0:
            stats.finish_reason = "length"
            return
        vocab = self.tokenizer.vocab_size  # the model may have padding rows beyond it
        prompt_clock, decode_clock = Clock(), Clock()
        self._check_ticket(ticket)
        with prompt_clock:
            new_ids = ids[stats.reused_tokens :]
            token = sampler.choose(self._session.prefill(new_ids, self.prefill_progress)[:vocab])
        stats.prompt_seconds = prompt_clock.seconds
        while token not in self.tokenizer.end_ids:
            stats.generated_tokens += 1
            yield token
            self._check_ticket(ticket)
            if stats.generated_tokens == max_new_tokens:
                stats.finish_reason = "length"
                return
            if len(self._session) == self.context:
                stats.finish_reason = "context"
                return
            with decode_clock:
                token = sampler.choose(self._session.step(token)[:vocab])
            stats.decode_tokens += 1
            stats.decode_seconds = decode_clock.seconds
        stats.finish_reason = "eos"

    def _pieces(
        self, tokens: Iterator[int], text: TextStream, stop: StopStrings, stats: GenerationStats
    ) -> Iterator[str]:
        """Text pieces of ``tokens``, cut at stop strings; never empty, never half a character."""
        for token in tokens:
            if piece := stop.push(text.push(token)):
                yield piece
            if stop.hit:
                stats.finish_reason = "stop"
                return
        piece = stop.push(text.flush())
        if piece := piece + stop.flush():
            yield piece

    def _check_ticket(self, ticket: int) -> None:
        if ticket != self._ticket:
            raise RuntimeError("another call on this LLM has started; this iterator is stale")
