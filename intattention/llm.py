"""The LLM class: load a model, complete a prompt, answer a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, overload

from intattention import cuda, models
from intattention._core import Decoder, DecoderConfig, ThreadPool
from intattention.answer import Answer
from intattention.chat_template import Message, Tool
from intattention.checkpoint import FloatFormat, requantised_note
from intattention.constraints import Constraint, Constraints, Schema
from intattention.context import checked_context, fitting_context
from intattention.errors import ModelFileError
from intattention.model_file import open_model_file
from intattention.model_registry import find_model
from intattention.prompt_lookup import Drafter
from intattention.sampling import SamplingParams
from intattention.session import AnyDecoder, Clock, Session, on_cpu
from intattention.stats import GenerationStats
from intattention.tokenizer import TextTokenizer

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
        lookup: int
        json_schema: Schema | None
        regex: str | None


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
        self.constraints = Constraints(tokenizer)
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
    def cpu_decoder(self) -> Decoder:
        """``decoder`` where only the CPU's will do. RuntimeError: the model is on a GPU."""
        return on_cpu(self._decoder, "several sequences in one pass")

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
        self,
        prompt: str | Sequence[int],
        *,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> Iterator[str]: ...
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        lookup: int = 0,
        json_schema: Schema | None = None,
        regex: str | None = None,
        stream: bool = False,
    ) -> str | Iterator[str]:
        """Continues ``prompt``: the whole text, or with ``stream`` an iterator of its pieces.

        ``prompt``: a text, or token ids, which are taken as they are.
        Ends at a token that ends a turn, before a stop string, after ``max_new_tokens``, or when
        the context is full; ``last_stats.finish_reason`` says which. The sampling arguments are
        those of ``SamplingParams``; temperature 0 is greedy and deterministic. ``lookup``: guess up
        to so many tokens (at most 64) from what followed the same words earlier in the text, and
        check them in one pass; the answer stays the same to the token, and comes sooner where it
        repeats its prompt. ``json_schema`` or ``regex``: what the whole answer must fit, unless
        ``max_new_tokens`` or the context cut it short; needs the extra "constraints".

        ValueError: an empty prompt or an argument out of range. ContextOverflowError: the prompt
        leaves no room for an answer. An iterator that is continued after another call on this LLM
        raises RuntimeError. After KeyboardInterrupt the LLM can be used again.
        """
        if len(prompt) == 0:
            raise ValueError("the prompt is empty")
        params = SamplingParams(temperature, top_p, top_k, min_p, repetition_penalty, seed)
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        constraint = self.constraints.make(json_schema, regex)
        return self._run(ids, params, max_new_tokens, stop, lookup, constraint, stream)

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
        lookup: int = 0,
        json_schema: Schema | None = None,
        regex: str | None = None,
        stream: bool = False,
    ) -> str | Iterator[str]:
        """The assistant's answer to ``messages`` ({"role": ..., "content": ...}, oldest first).

        The model file's chat template makes the prompt, with ``tools`` if it knows them;
        everything else is as in ``generate``.
        UnsupportedModelError if the model has no chat template. Control tokens that a message
        spells out are text like any other.
        """
        params = SamplingParams(temperature, top_p, top_k, min_p, repetition_penalty, seed)
        ids = self.tokenizer.encode_chat(messages, tools)
        constraint = self.constraints.make(json_schema, regex)
        return self._run(ids, params, max_new_tokens, stop, lookup, constraint, stream, True)

    def reset(self) -> None:
        """Forgets the conversation and frees the cache."""
        self._ticket += 1
        self._session = Session(self._decoder, self.context)

    def save_session(self, path: str | Path) -> int:
        """Writes the tokens in the cache, and their keys and values, to a file; returns how many.

        The file appears whole and durable or, whenever the process dies, the older one stays. It
        can be read on any machine, with the same model. ValueError if the cache is empty. OSError.
        """
        return self._session.save(Path(path))

    def load_session(self, path: str | Path) -> int:
        """Replaces the cache by that of a file; returns its tokens.

        The next prompt that begins as the saved text does computes only what is new, and gives
        the same bits as if nothing had been saved. SessionFileError: damaged, or of another model.
        ContextOverflowError: longer than ``context``. OSError. The cache is then as it was.
        """
        tokens = self._session.load(Path(path))
        self._ticket += 1
        return tokens

    def _run(
        self,
        ids: list[int],
        params: SamplingParams,
        max_new_tokens: int,
        stop: str | Sequence[str] | None,
        lookup: int,
        constraint: Constraint | None,
        stream: bool,
        at_start: bool = False,
    ) -> str | Iterator[str]:
        answer = Answer(
            self.tokenizer, ids, params, max_new_tokens, self.context, stop, at_start, constraint
        )
        drafter = Drafter(ids, lookup)
        self._ticket += 1
        stats = GenerationStats(prompt_tokens=len(ids), reused_tokens=self._session.rewind(ids))
        self.last_stats = stats
        pieces = self._pieces(ids[stats.reused_tokens :], answer, drafter, stats, self._ticket)
        return pieces if stream else "".join(pieces)

    def _pieces(
        self,
        new_ids: list[int],
        answer: Answer,
        drafter: Drafter,
        stats: GenerationStats,
        ticket: int,
    ) -> Iterator[str]:
        """Text pieces of ``answer``, none empty; fills ``stats``."""
        prompt_clock, decode_clock = Clock(), Clock()
        self._check_ticket(ticket)
        while not answer.finish_reason:
            if not answer.tokens:
                with prompt_clock:
                    pieces = [answer.push(self._session.prefill(new_ids, self.prefill_progress))]
            else:
                with decode_clock:
                    pieces = self._step(answer, drafter, stats)
            stats.prompt_seconds, stats.decode_seconds = prompt_clock.seconds, decode_clock.seconds
            stats.generated_tokens = len(answer.tokens)
            stats.finish_reason = answer.finish_reason
            for piece in filter(None, pieces):
                yield piece
                self._check_ticket(ticket)
        stats.finish_reason = answer.finish_reason

    def _step(self, answer: Answer, drafter: Drafter, stats: GenerationStats) -> list[str]:
        """One pass over the weights: the next token, and those that were guessed right."""
        draft = drafter.draft(answer)
        logits = self._session.step([answer.tokens[-1], *draft])
        pieces = []
        for row, guess in zip(logits, [*draft, None], strict=True):
            pieces.append(answer.push(row))
            if answer.finish_reason or answer.chosen != guess:
                break
        self._session.drop(len(logits) - len(pieces))
        stats.decode_steps += 1
        stats.decode_tokens += len(pieces)
        stats.drafted_tokens += len(draft)
        stats.accepted_tokens += len(pieces) - 1
        return pieces

    def _check_ticket(self, ticket: int) -> None:
        if ticket != self._ticket:
            raise RuntimeError("another call on this LLM has started; this iterator is stale")
