"""What a server was told when it was started."""

from dataclasses import dataclass, replace

from intattention import _core, machine
from intattention.context import CACHE_SHARE
from intattention.llm import LLM

MAX_LOGPROBS = 20
MAX_STOPS = 16
MIN_KEY = 8  # characters of an API key


@dataclass(frozen=True)
class Settings:
    """``model``: the name requests use. ``memory_bytes``: what KV caches may take, those of
    running texts and those kept for reuse. ``context``: tokens a text may have, prompt included.
    ``parallel``: texts that are generated at a time; ``queue``: texts that may wait.
    ``max_tokens``: of one answer; also what a chat gets that asks for no number.
    ``max_choices``: texts of one request. ``hosts``: values of the Host header that are answered;
    empty: all."""

    model: str
    memory_bytes: int = 0
    context: int = 0
    parallel: int = 8
    queue: int = 64
    max_tokens: int = 2048
    max_choices: int = 64
    body_bytes: int = 4 << 20
    api_key: str | None = None
    hosts: tuple[str, ...] = ()


def fitting_settings(settings: Settings, llm: LLM, memory_bytes: int | None) -> Settings:
    """With memory and context filled in: a text of the whole context has room in the memory.

    None: what ``LLM.load`` allows a cache to have. ValueError if not even a block has room.
    """
    bytes_for = llm.cpu_decoder.new_cache(llm.context).bytes_for
    if memory_bytes is None:
        memory = machine.memory_bytes()
        whole = settings.parallel * bytes_for(llm.context)
        memory_bytes = whole if memory is None else int(CACHE_SHARE * memory[1])
        memory_bytes = max(memory_bytes, bytes_for(1))
    blocks = memory_bytes // bytes_for(1)
    if blocks == 0:
        raise ValueError(
            f"{machine.format_bytes(memory_bytes)} of memory, but {_core.KEY_BLOCK} tokens of "
            f"cache take {machine.format_bytes(bytes_for(1))}"
        )
    context = min(llm.context, blocks * _core.KEY_BLOCK)
    return replace(settings, memory_bytes=memory_bytes, context=context)
