"""Writes the seeds of fuzz/corpus: the smallest models that load, whole and packed, and a session.

python fuzz/make_corpus.py
"""

import shutil
from pathlib import Path

from targets import FOLDER, model, tiny_model

from intattention.pack import pack_model

CORPUS = Path(__file__).with_name("corpus")


def main() -> None:
    for name in ("gguf", "iatt", "session"):
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
    llm = model()
    llm.generate("the one", max_new_tokens=1)
    llm.save_session(CORPUS / "session" / "tiny")
    small = tiny_model.TinyModel(layers=1, hidden=32, heads=2, kv_heads=1, inner=32)
    path = tiny_model.write(FOLDER / "small.gguf", small)
    shutil.copy(path, CORPUS / "gguf" / "small")
    pack_model(path, CORPUS / "iatt" / "small", force=True)


if __name__ == "__main__":
    main()
