"""Tasks of our own for lm_eval, as files: one of each kind of request."""

import json
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

import intattention.integrations.lm_eval  # noqa: F401 - registers --model intattention

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{text}"
doc_to_target: "{target}"
num_fewshot: 0
metadata:
  version: 0
"""
FACTS = [
    {"question": "The capital of France is", "choices": ["London", "Paris"], "label": 1},
    {"question": "The capital of Italy is", "choices": ["Rome", "Oslo", "Lima"], "label": 0},
    {"question": "The Sun is a", "choices": ["star", "planet"], "label": 0},
]
PROSE = [
    {"text": " ".join(["It was the best of times, it was the worst of times."] * 8)},
    {"text": "Call me Ishmael."},
]
PROMPTS = [
    {"question": "The days of the week are Monday, Tuesday,", "answer": " Wednesday"},
    {"question": "The days of the week are Monday, Tuesday, Wednesday,", "answer": " Thursday"},
]


def write_task(folder: Path, name: str, kind: str, text: str, target: str, docs: Any) -> str:
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in docs), encoding="utf-8")
    content = TASK.format(name=name, data=data, kind=kind, text=text, target=target)
    if kind == "multiple_choice":
        content += 'doc_to_choice: "{{choices}}"\n'
    if kind == "generate_until":
        content += "generation_kwargs:\n  until: [',', '.']\n  max_gen_toks: 8\n"
        content += "metric_list:\n  - metric: exact_match\n"
    (folder / f"{name}.yaml").write_text(content, encoding="utf-8")
    return name


def evaluate(folder: Path, **model: Any) -> dict[str, Any]:
    """Results of ``model`` for the three tasks, whose files go into ``folder``."""
    tasks = [
        write_task(folder, "facts", "multiple_choice", "{{question}}", "{{label}}", FACTS),
        write_task(folder, "prose", "loglikelihood_rolling", "", "{{text}}", PROSE),
        write_task(folder, "days", "generate_until", "{{question}}", "{{answer}}", PROMPTS),
    ]
    found: dict[str, Any] = lm_eval.simple_evaluate(
        **model,
        tasks=tasks,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    return found
