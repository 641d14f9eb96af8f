"""Session files: the same bits after loading, other models refused, kill -9 harmless."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_model
from isa_fixture import isa  # noqa: F401
from reference.decoder import Config, random_model
from small_decoder import build

from intattention import LLM, ContextOverflowError, SessionFileError
from intattention.fingerprint import fingerprint
from intattention.session_file import read_session, write_session

WriteTiny = Callable[..., Path]
PROMPT = "the one in the"


@pytest.fixture
def saved(tiny: LLM, tmp_path: Path) -> Path:
    tiny.generate(PROMPT, max_new_tokens=9)
    path = tmp_path / "saved.session"
    tiny.save_session(path)
    return path


def test_continues_with_the_same_text(tiny: LLM, tiny_path: Path, saved: Path) -> None:
    length = len(tiny.tokenizer.encode(PROMPT)) + 8  # the ninth token needs no place yet
    longer = PROMPT + tiny.generate(PROMPT, max_new_tokens=9) + " and"
    expected = tiny.generate(longer, max_new_tokens=30)
    other = LLM.load(tiny_path, threads=1)
    assert other.load_session(saved) == length
    assert other.generate(longer, max_new_tokens=30) == expected
    assert other.last_stats.reused_tokens > 5


@pytest.mark.parametrize("length", [1, 255, 256, 257, 600])
def test_bits_do_not_change(isa: str, tmp_path: Path, length: int) -> None:  # noqa: F811
    """Logits after the file equal those without it: keys, values, scales, what is derived."""
    decoder = build(random_model(Config()))
    ids = np.random.default_rng(0).integers(0, 128, length + 40, dtype=np.int32)
    cache = decoder.new_cache(1000)
    decoder.forward(ids[:length], cache, "none")
    path = tmp_path / "s.session"
    write_session(path, decoder, ids[:length].tolist(), cache)
    read_ids, read = read_session(path, decoder, 1000)
    assert read_ids == ids[:length].tolist()
    assert (len(read), read.nbytes) == (length, cache.nbytes)
    for i in range(length, length + 40):
        expected = decoder.forward(ids[i : i + 1], cache)
        np.testing.assert_array_equal(decoder.forward(ids[i : i + 1], read), expected)


def test_files_do_not_depend_on_the_isa(tmp_path: Path) -> None:
    from intattention import active_isa, available_isas, use_isa

    before, contents = active_isa(), set()
    try:
        for name in available_isas():
            use_isa(name)
            decoder = build(random_model(Config()))
            cache = decoder.new_cache(300)
            ids = np.arange(100, dtype=np.int32)
            decoder.forward(ids, cache, "none")
            write_session(tmp_path / name, decoder, ids.tolist(), cache)
            contents.add((tmp_path / name).read_bytes())
    finally:
        use_isa(before)
    assert len(contents) == 1


def test_a_packed_model_is_the_same_model(saved: Path, packed_path: Path) -> None:
    assert LLM.load(packed_path, threads=2).load_session(saved) > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"layers": 1},
        {"metadata": {"llama.rope.freq_base": 10001.0}},
        {"metadata": {"llama.attention.layer_norm_rms_epsilon": 1e-4}},
        {"types": {"blk.1.ffn_down.weight": tiny_model.Type.Q8_0}},
    ],
)
def test_another_model_is_refused(
    saved: Path, write_tiny: WriteTiny, changes: dict[str, object]
) -> None:
    llm = LLM.load(write_tiny(**changes), threads=1)
    expected = llm.generate(PROMPT, max_new_tokens=5)
    with pytest.raises(SessionFileError, match=r"saved\.session: .* another model"):
        llm.load_session(saved)
    assert llm.generate(PROMPT, max_new_tokens=5) == expected


def test_one_changed_weight_is_another_model(write_tiny: WriteTiny, tiny: LLM) -> None:
    """A single nibble of one matrix."""
    weights = tiny_model.float_tensors(tiny_model.TinyModel())["blk.0.attn_v.weight"]
    weights[3, 7] = -weights[3, 7]
    other = LLM.load(write_tiny(tensors={"blk.0.attn_v.weight": weights}), threads=1)
    assert fingerprint(other.decoder) != fingerprint(tiny.decoder)


def test_context_must_suffice(saved: Path, tiny_path: Path) -> None:
    llm = LLM.load(tiny_path, threads=1, ctx=8)
    with pytest.raises(ContextOverflowError, match="limit of 8"):
        llm.load_session(saved)
    assert llm.generate("th", max_new_tokens=2)


def test_nothing_to_save(tiny: LLM, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tokens yet"):
        tiny.save_session(tmp_path / "s")
    tiny.generate(PROMPT, max_new_tokens=2)
    with pytest.raises(IsADirectoryError):
        tiny.save_session(tmp_path)
    with pytest.raises(OSError, match=r"no/\.s"):
        tiny.save_session(tmp_path / "no" / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tiny: LLM, saved: Path, monkeypatch) -> None:
    content = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    tiny.generate("another one", max_new_tokens=9)
    with pytest.raises(OSError, match="No space"):
        tiny.save_session(saved)
    assert saved.read_bytes() == content
    assert os.listdir(saved.parent) == [saved.name]


SAVER = """
import os, sys, time
from pathlib import Path
from intattention import LLM, framed_file

model, target, when = sys.argv[1:]
llm = LLM.load(model, threads=1)
llm.generate("another one of them", max_new_tokens=20)

def stop(*_):
    print("now", flush=True)
    time.sleep(60)

if when == "section":
    append = framed_file.FrameWriter.append
    def half(self, data):
        append(self, data[: len(data) // 2])
        self._file.flush()
        stop()
    framed_file.FrameWriter.append = half
elif when == "fsync":
    os.fsync = stop
elif when == "rename":
    Path.replace = stop
elif when == "renamed":
    framed_file._sync_folder = stop
llm.save_session(target)
"""


@pytest.mark.parametrize("when", ["section", "fsync", "rename", "renamed"])
def test_kill_9_during_a_save(saved: Path, tiny: LLM, tiny_path: Path, when: str) -> None:
    """The process dies for real, at the moments that matter; the old file (after the rename the
    new one) is whole."""
    content = saved.read_bytes()
    arguments = [sys.executable, "-c", SAVER, str(tiny_path), str(saved), when]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert (saved.read_bytes() == content) == (when != "renamed")
    assert tiny.load_session(saved) > 0
    tiny.save_session(saved)  # what the dead process left behind is not in the way
    assert saved.read_bytes() != b""


def test_cli(run: Callable[..., tuple[int, str, str]], tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    command = ["generate", "-m", tiny_path, "--raw", "-n", 4, "--session", path, PROMPT]
    status, text, err = run(*command)
    assert status == 0
    assert "(0 reused)" in err
    status, again, err = run(*command)
    assert (status, again) == (0, text)
    assert "(0 reused)" not in err
    path.write_bytes(path.read_bytes()[:-1])
    status, _, err = run(*command)
    assert status == 1
    assert err.startswith(f"error: {path}: ")
