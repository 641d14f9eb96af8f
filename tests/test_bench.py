"""Each benchmark, tiny: it checks its result, prints what it should and writes its JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
LLAMA_BENCH = """#!/bin/sh
printf '%s ' "$@" >>"$0.arguments"
cat <<'END'
[{"n_prompt": 8, "n_gen": 0, "n_depth": 4, "samples_ts": [20.0]},
 {"n_prompt": 0, "n_gen": 2, "n_depth": 4, "samples_ts": [5.0]}]
END
"""


def run(
    tmp_path: Path, script: str, *arguments: object, path: str = ""
) -> tuple[str, dict[str, Any]]:
    """Standard output and the JSON; outside the source tree, see test_cli.py."""
    out = tmp_path / "out.json"
    command = [sys.executable, BENCH / script, "-t", 1, "--repeats", 1, "--json", out, *arguments]
    environment = {**os.environ, "PATH": path + os.environ["PATH"]}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(out.read_text())
    assert {"cpu", "isa", "threads", "commit"} <= result.keys()
    assert f"{result['isa']}, 1 threads, commit {result['commit']}" in done.stdout
    return done.stdout, result


def test_bench_linear(tmp_path: Path) -> None:
    out, result = run(
        tmp_path, "bench_linear.py", "--models", "smollm2-135m", "--linears", "qkv", "o",
        "--m", 1, 5, "--cold-mib", 1,
    )  # fmt: skip
    assert [linear["names"] for linear in result["linears"]] == [
        ["smollm2-135m qkv"],
        ["smollm2-135m o"],
    ]
    for linear in result["linears"]:
        cases = [(row["format"], row["m"]) for row in linear["rows"]]
        assert cases == [(name, m) for name in ("w4g32", "w4g32a", "w8g32") for m in (1, 5)]
        assert all(row["gb_s" if row["m"] == 1 else "gop_s"] > 0 for row in linear["rows"])
    assert "576 -> 960: smollm2-135m qkv" in out
    assert "GB/s, in cache" in out
    assert "of peak" in out


def test_bench_llm_on_a_file(tmp_path: Path, tiny_path: Path) -> None:
    out, result = run(
        tmp_path, "bench_llm.py", "-m", tiny_path, "--prompt", 8, "--tokens", 2,
        "--depths", 0, 4,
    )  # fmt: skip
    tests = [(f"{row['test']}{row['tokens']}", row["depth"]) for row in result["rows"]]
    assert tests == [("pp8", 0), ("tg2", 0), ("pp8", 4), ("tg2", 4)]
    assert "greedy tokens equal those of the portable kernels" in out
    # tiny.gguf is untied: its embedding (w8g32, 300 rows of 64,
    # padded to whole tiles of 8) is not read for every token.
    assert result["weight_bytes"] - result["read_bytes"] == 304 * 64 // 32 * 34
    assert result["resident_bytes"] > 0


def test_bench_llm_beside_llama_bench(tmp_path: Path, tiny_path: Path) -> None:
    fake = tmp_path / "llama-bench"
    fake.write_text(LLAMA_BENCH)
    fake.chmod(0o755)
    out, result = run(
        tmp_path, "bench_llm.py", "-m", tiny_path, "--prompt", 8, "--tokens", 2, "--depths", 4,
        path=f"{tmp_path}{os.pathsep}",
    )  # fmt: skip
    names = ["llama-bench f16", "llama-bench f16 fa", "llama-bench q8_0 fa"]
    assert [list(row["rivals"]) for row in result["rows"]] == [names] * 2
    assert "20.0 tok/s  (20.0 to 20.0)  llama-bench q8_0 fa" in out
    assert "5.0 tok/s  (5.0 to 5.0)  llama-bench f16\n" in out
    ratio = result["rows"][0]["tok_s"] / 20
    assert f"{ratio:.2f} x the best of them, {ratio:.2f} x by fastest turns" in out
    given = (tmp_path / "llama-bench.arguments").read_text()
    for cache, attention in (("f16", "off"), ("f16", "on"), ("q8_0", "on")):
        options = f"-ctk {cache} -ctv {cache} -fa {attention} -ngl 0 -o json -p 8 -n 2 -d 4 "
        assert f"-m {tiny_path} -t 1 -r 1 {options}" in given


@pytest.mark.parametrize(
    "name", ["smollm2-135m", pytest.param("qwen3-0.6b", marks=pytest.mark.slow)]
)
def test_bench_llm_on_random_weights(tmp_path: Path, name: str) -> None:
    out, result = run(
        tmp_path, "bench_llm.py", "--synthetic", name, "--layers", 2, "--prompt", 8,
        "--tokens", 2,
    )  # fmt: skip
    assert [(row["test"], row["tokens"]) for row in result["rows"]] == [("pp", 8), ("tg", 2)]
    assert f"{name} shape, random weights, 2 of " in out
    assert ("without q and k norm" in out) == (name == "qwen3-0.6b")
    assert "after the whole prompt equal those after it token by token" in out


def test_bench_attention(tmp_path: Path) -> None:
    _, result = run(
        tmp_path, "bench_attention.py", "--lengths", 64, "--dims", 32, "--heads", 2,
        "--kv-heads", 1, "--pipelines", "index", "fp32",
    )  # fmt: skip
    assert [row["pipeline"] for row in result["rows"]] == ["index", "fp32"] * 2
