"""``--model intattention`` for lm_eval (EleutherAI's lm-evaluation-harness), in this process.

python -m intattention.integrations.lm_eval --model intattention \
    --model_args pretrained=smollm2-135m-instruct --tasks hellaswag,piqa
"""

from collections.abc import Sequence
from typing import Any

import lm_eval.models  # noqa: F401 - lm_eval names its own models only where no other is named
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

import intattention
from intattention import LLM, machine
from intattention.checkpoint import FloatFormat
from intattention.eval.loglikelihood import Pair, loglikelihoods

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
GENERATION = ("until", "max_gen_toks", "do_sample", *SAMPLING)


@register_model("intattention")
class IntAttentionLM(TemplateLM):  # type: ignore[misc]
    """This library's runtime as lm_eval sees a model.

    Requests are computed in the order of their token ids: few-shot examples, or a question with
    several answers, cost their common beginning once. There are no batches beside that, and
    ``batch_size`` is taken without effect.
    """

    def __init__(
        self,
        pretrained: str,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        weights: FloatFormat = "w4g32a",
        threads: int = 0,
        cpus: str | int = "",
        isa: str = "",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        """pretrained, weights, threads, cpus: as ``LLM.load`` takes them; isa: as ``use_isa``.

        max_length: tokens of the context, by default the model's or what memory holds.
        max_gen_toks: of a task that names none. add_bos_token: whether texts begin with BOS; None
        does what the model's files say. Raises what ``LLM.load`` raises, and ValueError for a
        device other than the CPU.
        """
        super().__init__()
        if device not in (None, "cpu"):
            raise ValueError(f"device is {device!r}: intattention runs on the CPU")
        if isa:
            intattention.use_isa(isa)
        pinned = machine.parse_cpus(str(cpus)) if cpus != "" else None
        self._name = pretrained
        self._llm = LLM.load(pretrained, threads, pinned, max_length, weight_format=weights)
        tokens = self._llm.tokenizer
        self._add_bos = tokens.add_bos if add_bos_token is None else add_bos_token
        self._max_gen_toks = max_gen_toks

    @property
    def max_length(self) -> int:
        """Tokens of the context."""
        return self._llm.context

    @property
    def eot_token_id(self) -> int:
        tokens = self._llm.tokenizer
        return min(tokens.end_ids) if tokens.eos_id is None else tokens.eos_id

    @property
    def prefix_token_id(self) -> int:
        """What a text begins with that is scored from its first token on."""
        bos = self._llm.tokenizer.bos_id
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        return self._name

    def tok_encode(self, string: str, **_: Any) -> list[int]:
        ids = self._llm.tokenizer.encode(string, add_bos=False)
        bos = self._llm.tokenizer.bos_id
        if self._add_bos and bos is not None and ids[:1] != [bos]:  # a chat template has its own
            return [bos, *ids]
        return ids

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        template = self._llm.tokenizer.chat_template
        if template is None:
            raise ValueError(f"{self._name} has no chat template")
        return template.render(chat_history, add_generation_prompt=add_generation_prompt)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        pairs: list[Pair] = []
        counts = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(
                token_list=self._llm.tokenizer.encode(text, add_bos=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            before = len(pairs)
            pairs.extend(map(make_disjoint_window, windows))
            counts.append(len(pairs) - before)
        scores = iter(self._score(pairs, disable_tqdm))
        totals = [sum(next(scores)[0] for _ in range(count)) for count in counts]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        scores = self._score([(prompt, answer) for _, prompt, answer in requests], disable_tqdm)
        for (texts, _, _), score in zip(requests, scores, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, score)
        return scores

    def _score(self, pairs: Sequence[Pair], disable_tqdm: bool) -> list[tuple[float, bool]]:
        with tqdm(total=len(pairs), desc="loglikelihood", disable=disable_tqdm) as bar:
            found = loglikelihoods(
                self._llm.decoder, pairs, self.max_length, lambda done, _: bar.update(done - bar.n)
            )
        return [(x.logprob, x.greedy) for x in found]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        prompts = [
            self.tok_encode(request.args[0]) or [self.prefix_token_id] for request in requests
        ]
        texts = [""] * len(requests)
        order = sorted(range(len(requests)), key=prompts.__getitem__)
        for index in tqdm(order, desc="generate_until", disable=disable_tqdm):
            arguments = requests[index].args
            texts[index] = self._generate(prompts[index], dict(arguments[1]))
            self.cache_hook.add_partial("generate_until", arguments, texts[index])
        return texts

    def _generate(self, prompt: list[int], options: dict[str, Any]) -> str:
        unknown = set(options) - set(GENERATION)
        if unknown:
            raise ValueError(
                f"generation_kwargs has {', '.join(sorted(unknown))}, known: "
                f"{', '.join(GENERATION)}"
            )
        until = options.get("until") or []
        stop = [until] if isinstance(until, str) else until
        sampling = {key: options[key] for key in SAMPLING if key in options}
        if options.get("do_sample") is False:
            sampling["temperature"] = 0.0
        elif options.get("do_sample"):
            sampling.setdefault("temperature", 1.0)
        count = min(options.get("max_gen_toks", self._max_gen_toks), self.max_length - 1)
        text: str = self._llm.generate(
            prompt[-(self.max_length - count) :], max_new_tokens=count,
            stop=[string for string in stop if string], **sampling,
        )  # fmt: skip
        return text


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
