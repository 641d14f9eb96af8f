"""Prompt lookup against plain decoding: answers that repeat their prompt, and one that does not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intattention import LLM
from intattention.bench.errors import BenchError
from intattention.bench.tables import Table
from intattention.bench.timing import Policy, measure
from intattention.stats import GenerationStats

NOTES = """\
Meeting notes, 14 May. Present: Ana (hardware), Bo (firmware), Chen (test), Dita (purchasing).
Ana said that the second board revision came back with the power rail fixed, and that the camera
connector has moved two millimetres to the left. Bo said that the boot loader now checks the
signature of the image before it starts it, and that the update takes forty seconds. Chen said that
three of ten boards failed the heat test at seventy degrees, always with the same memory error, and
that the supplier has been told. Dita said that the next hundred boards will cost eleven percent
more, because the memory chips are short, and that an order before the end of May keeps the old
price. It was agreed to order fifty boards now, to repeat the heat test with the slower memory
timing, and to meet again on 21 May."""
PROMPTS = {
    "copy": f"Repeat the following text word for word.\n\n{NOTES}",
    "summary": f"List who said what in the following notes, one line per person.\n\n{NOTES}",
    "open": "Write a story about a lighthouse keeper who finds a message in a bottle.",
}


@dataclass
class Run:
    """One prompt with one number of guesses; ``lookup`` 0: plain decoding."""

    prompt: str
    lookup: int
    text: str
    stats: GenerationStats


def measure_lookup(
    llm: LLM, lookups: Sequence[int], tokens: int, policy: Policy
) -> tuple[list[Run], dict[tuple[str, int], float]]:
    """A run per prompt and number of guesses, and the median seconds of its decoding.

    BenchError if a text differs from that of plain decoding.
    """
    runs = {
        (name, lookup): run(llm, name, lookup, tokens)
        for name in PROMPTS
        for lookup in (0, *lookups)
    }
    for (name, lookup), one in runs.items():
        if one.text != runs[name, 0].text:
            raise BenchError(f"lookup {lookup} writes another text for the prompt {name!r}")
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in runs}

    def work(name: str, lookup: int) -> Callable[[], None]:
        return lambda: seconds[name, lookup].append(
            run(llm, name, lookup, tokens).stats.decode_seconds
        )

    measure({key: work(*key) for key in runs}, policy)
    medians = {key: sorted(values)[len(values) // 2] for key, values in seconds.items()}
    return list(runs.values()), medians


def run(llm: LLM, name: str, lookup: int, tokens: int) -> Run:
    if llm.tokenizer.chat_template is None:
        text = llm.generate(PROMPTS[name], max_new_tokens=tokens, lookup=lookup)
    else:
        messages = [{"role": "user", "content": PROMPTS[name]}]
        text = llm.chat(messages, max_new_tokens=tokens, lookup=lookup)
    return Run(name, lookup, text, llm.last_stats)


def lookup_table(runs: Sequence[Run], medians: dict[tuple[str, int], float]) -> Table:
    rows = []
    for one in runs:
        stats, seconds = one.stats, medians[one.prompt, one.lookup]
        plain = medians[one.prompt, 0]
        accepted = stats.accepted_tokens / stats.drafted_tokens if stats.drafted_tokens else 0.0
        rows.append([
            one.prompt, str(one.lookup) if one.lookup else "off", str(stats.decode_tokens),
            f"{stats.decode_tokens / max(1, stats.decode_steps):.2f}", f"{accepted:.0%}",
            f"{stats.decode_tokens / seconds:.1f}", f"{plain / seconds:.2f} x",
        ])  # fmt: skip
    columns = ["prompt", "guesses", "tokens", "per step", "accepted", "tok/s", "against greedy"]
    return Table("Prompt lookup", columns, rows)
