"""The command line: what it prints where, exit statuses, one-line errors."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf.constants import GGMLQuantizationType as Type

import intattention
from intattention import LLM

WriteTiny = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


def one_line_error(err: str) -> bool:
    return err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")


# answers --------------------------------------------------------------------------------------
def test_generate_prints_the_answer_and_one_line_of_statistics(
    run: Run, tiny: LLM, tiny_path: Path
) -> None:
    status, out, err = run("generate", "-m", tiny_path, "-n", 8, "the one")
    expected = tiny.chat([{"role": "user", "content": "the one"}], max_new_tokens=8)
    assert (status, out) == (0, expected + "\n")
    assert err.count("\n") == 1
    assert "tok/s" in err
    assert "peak memory" in err


def test_generate_raw(run: Run, tiny: LLM, tiny_path: Path) -> None:
    _, out, _ = run("generate", "-m", tiny_path, "-n", 8, "--raw", "the one")
    assert out == tiny.generate("the one", max_new_tokens=8) + "\n"


def test_sampling_options_arrive(run: Run, tiny: LLM, tiny_path: Path) -> None:
    options = ("--temperature", 1.5, "--top-k", 9, "--top-p", 0.9, "--min-p", 0.01, "--seed", 3)
    _, out, _ = run(
        "generate", "-m", tiny_path, "-n", 9, "--raw", *options,
        "--repetition-penalty", 1.1, "--threads", 2, "--ctx", 64, "the one",
    )  # fmt: skip
    assert out.rstrip("\n") == tiny.generate(
        "the one", max_new_tokens=9, temperature=1.5, top_k=9, top_p=0.9, min_p=0.01, seed=3,
        repetition_penalty=1.1,
    ).rstrip("\n")  # fmt: skip


def test_chat_keeps_the_conversation(tiny_path: Path, tiny: LLM) -> None:
    # These commands run outside the source tree, whose package has no compiled core beside it.
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "the"}]
    first = tiny.chat(messages, max_new_tokens=6)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "on"}]
    second = tiny.chat(messages, max_new_tokens=6)
    command = [sys.executable, "-m", "intattention", "chat", "-m", tiny_path]
    done = subprocess.run(
        [*command, "-n", "6", "--system", "S"],
        input=b"the\n\non\n",
        capture_output=True,
        check=True,
        cwd=tiny_path.parent,
    )
    assert done.stdout.decode() == f"{first}\n{second}\n"
    assert done.stderr.decode().count("tok/s") == 4
    assert "0 reused" not in done.stderr.decode().splitlines()[1]


def test_chat_starts_afresh_when_full(
    run: Run, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = iter(["x" * 200, "the"])

    def ask(prompt: str = "") -> str:
        try:
            return next(questions)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", ask)
    status, out, err = run("chat", "-m", tiny_path, "-n", 4)
    assert status == 0
    assert out.strip()
    assert "starts afresh" in err.splitlines()[0]


def test_ctrl_c_stops_the_answer_and_not_the_chat(
    run: Run, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = iter(["the", "on"])
    chat, calls = LLM.chat, []

    def interrupted(self: LLM, messages: list[dict[str, str]], **options: object) -> object:
        calls.append(list(messages))
        pieces = chat(self, messages, **options)  # type: ignore[call-overload]
        if len(calls) > 1:
            return pieces

        def until_ctrl_c() -> object:
            yield "half"
            raise KeyboardInterrupt

        return until_ctrl_c()

    def ask(prompt: str = "") -> str:
        question = next(questions, None)
        if question is None:
            raise EOFError
        return question

    monkeypatch.setattr(LLM, "chat", interrupted)
    monkeypatch.setattr("builtins.input", ask)
    status, out, err = run("chat", "-m", tiny_path, "-n", 4)
    assert status == 0
    assert out.startswith("half\n")
    assert "[stopped]" in err
    assert calls[1][1] == {"role": "assistant", "content": "half"}


def test_ctrl_c_ends_generate(run: Run, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LLM, "chat", interrupt)
    assert run("generate", "-m", tiny_path, "the")[0] == 130


# reports --------------------------------------------------------------------------------------
def test_info_reads_no_weights(run: Run, tiny_path: Path, tmp_path: Path) -> None:
    status, out, err = run("info", tiny_path)
    assert (status, err) == (0, "")
    for words in ("llama", "14 Q4_1", "4 query, 2 kv", "128 tokens", "supported"):
        assert words in out


def test_pack_and_what_reads_it(run: Run, tiny_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "tiny.iatt"
    assert run("pack", tiny_path, target) == (0, "", "")
    _, expected, _ = run("generate", "-m", tiny_path, "-n", 8, "the one")
    assert run("generate", "-m", target, "-n", 8, "the one")[:2] == (0, expected)
    _, out, _ = run("info", target, "--verify")
    for words in ("IATT 2", "14 w4g32a", "all good", "supported"):
        assert words in out
    assert "none in this format" in run("info", tiny_path, "--verify")[1]
    status, _, err = run("pack", tiny_path, target)
    assert (status, one_line_error(err)) == (1, True)
    assert "exists; --force" in err


def test_info_says_why_a_model_cannot_run(run: Run, write_tiny: WriteTiny) -> None:
    status, out, _ = run("info", write_tiny(architecture="mamba"))
    assert status == 0
    assert "mamba" in out
    assert "no: " in out


def test_doctor(run: Run) -> None:
    status, out, err = run("doctor", "--threads", 1)
    assert (status, err) == (0, "")
    for words in (*intattention.available_isas(), "table active", "gemm_w4a8_", "1, not pinned"):
        assert words in out


def test_doctor_json(run: Run) -> None:
    status, out, err = run("doctor", "--threads", 1, "--json")
    facts = json.loads(out)
    assert (status, err) == (0, "")
    assert facts["tables"]["active"] == intattention.active_isa()
    assert facts["cpus"]["threads"] == 1
    assert {"rapl", "ina3221"} <= {meter["name"] for meter in facts["meters"]}
    assert all(meter["usable"] or meter["reason"] for meter in facts["meters"])


def test_isa_is_forced(run: Run) -> None:
    former = intattention.active_isa()
    try:
        _, out, _ = run("doctor", "--isa", "portable")
        assert "gemm_w4a8_portable" in out
    finally:
        intattention.use_isa(former)


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"intattention {intattention.__version__}\n", "")


def test_help_names_the_commands(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert all(command in out for command in ("generate", "chat", "pack", "info", "doctor"))


# errors ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing command"),
        (["generate"], "Missing"),
        (["fly"], "fly"),
        (["generate", "-m", "x", "--temperature", "hot", "hi"], "--temperature"),
        (["generate", "-m", "x", "--cpus", "7-4", "hi"], "'7-4'"),
        (["generate", "-m", "x", "--isa", "sse9", "hi"], "sse9"),
        (["generate", "-m", "x", "--threads", "-1", "hi"], "--threads"),
        (["generate", "-m", "x", "--ctx", "-1", "hi"], "--ctx"),
        (["generate", "-m", "x", "-n", "-1", "hi"], "--max-new-tokens"),
        (["doctor", "--isa", "sse9"], "sse9"),
    ],
)
def test_usage_errors_exit_with_2(run: Run, arguments: list[str], words: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert one_line_error(err)
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "nan", "hi"], "temperature is nan"),
        (["--top-p", "0", "hi"], "top_p is 0"),
        (["--seed", "-2", "hi"], "seed is -2"),
        ([""], "empty"),
    ],
)
def test_bad_values_exit_with_1(run: Run, arguments: list[str], words: str) -> None:
    """Before any model is looked for."""
    status, out, err = run("generate", "-m", "no-such-model", *arguments)
    assert (status, out) == (1, "")
    assert one_line_error(err)
    assert words in err


def test_model_errors_exit_with_1(run: Run, tiny_path: Path, write_tiny: WriteTiny) -> None:
    cases: list[tuple[list[object], str]] = []
    short = tiny_path.with_name("short.gguf")
    short.write_bytes(tiny_path.read_bytes()[:3000])
    cases.append((["generate", "-m", short, "hi"], "short.gguf"))
    cases.append((["info", short], "short.gguf"))
    magic = tiny_path.with_name("magic.gguf")
    magic.write_bytes(b"PK\x03\x04" + bytes(100))
    cases.append((["generate", "-m", magic, "hi"], "not a GGUF file"))
    magic.with_name("magic.iatt").write_bytes(magic.read_bytes())
    cases.append((["chat", "-m", magic.with_name("magic.iatt")], "not an .iatt file"))
    cases.append((["pack", "no-such-model", "x.iatt"], "no-such-model"))
    cases.append((["pack", tiny_path, tiny_path.parent, "--force"], "is a directory"))
    cases.append((["pack", tiny_path, "/no/such/folder/x.iatt"], "/no/such/folder"))
    cases.append((["generate", "-m", write_tiny(architecture="mamba"), "hi"], "mamba"))
    cases.append((["generate", "-m", "no-such-model", "hi"], "no-such-model"))
    cases.append((["chat", "-m", "no-such-model"], "no-such-model"))
    cases.append((["generate", "-m", tiny_path, "--ctx", 1000, "hi"], "ctx is 1000"))
    for arguments, words in cases:
        status, out, err = run(*arguments)
        assert (status, out) == (1, "")
        assert one_line_error(err)
        assert words in err


def test_prompt_too_long(run: Run, tiny_path: Path) -> None:
    status, _, err = run("generate", "-m", tiny_path, "--raw", "x" * 500)
    assert status == 1
    assert one_line_error(err)
    assert "500 tokens, the context 128" in err


def test_debug_shows_the_traceback(tiny_path: Path) -> None:
    command = [sys.executable, "-m", "intattention", "info", "no-such-model"]
    plain = subprocess.run(command, capture_output=True, check=False, cwd=tiny_path.parent)
    command.append("--debug")
    debug = subprocess.run(command, capture_output=True, check=False, cwd=tiny_path.parent)
    assert (plain.returncode, debug.returncode) == (1, 1)
    assert b"Traceback" not in plain.stderr
    assert b"Traceback" in debug.stderr


def test_closed_pipe_is_quiet(tiny_path: Path) -> None:
    command = [sys.executable, "-m", "intattention", "generate", "-m", tiny_path, "--raw", "the"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tiny_path.parent
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_new_quantisation_is_told(run: Run, write_tiny: WriteTiny, tmp_path: Path) -> None:
    path = write_tiny(type=Type.Q5_1)
    note = "note: 14 matrices have no exact form here and were quantised anew; that added"
    for arguments in (("generate", "-n", 1, "--raw", "the", "-m"), ("pack", "--force")):
        target = [tmp_path / "out.iatt"] if arguments[0] == "pack" else []
        status, _, err = run(*arguments, path, *target)
        assert status == 0
        assert err.count(note) == 1


def test_weights_option(run: Run, write_tiny: WriteTiny, tmp_path: Path) -> None:
    path = write_tiny(type=Type.BF16)
    sizes = []
    for name in ("w4g32a", "w8g32"):
        assert run("pack", path, tmp_path / f"{name}.iatt", "--weights", name)[0] == 0
        sizes.append((tmp_path / f"{name}.iatt").stat().st_size)
    assert sizes[1] > sizes[0] + 10_000
    status, _, err = run("generate", "-m", path, "--weights", "w2", "the")
    assert status == 2
    assert one_line_error(err)
