"""Models by their name on the Hugging Face hub: downloaded once, into its cache."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intattention.errors import ModelNotFoundError
from intattention.hf_folder import INDEX
from intattention.hf_texts import TEXTS

NAME = re.compile(r"(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(/(?P<file>[\w./-]+\.gguf))?")


def is_hub_name(text: str) -> bool:
    """Whether ``text`` looks like "owner/name" or "owner/name/file.gguf"."""
    return NAME.fullmatch(text) is not None and ".." not in text


def fetch(name: str, show_progress: bool = False) -> Path:
    """The local folder of "owner/name", or the file of "owner/name/file.gguf".

    What the cache has is not downloaded again; an interrupted download goes on where it was.
    ``show_progress``: bars on stderr. ModelNotFoundError says what to do without a connection.
    """
    import huggingface_hub  # slow to import
    from huggingface_hub.errors import HfHubHTTPError

    match = NAME.fullmatch(name)
    assert match is not None
    repo, file = match["repo"], match["file"]
    try:
        with _progress_bars(show_progress):
            if file is not None:
                return Path(str(huggingface_hub.hf_hub_download(repo, file)))
            patterns = [*TEXTS, INDEX, "model*.safetensors"]
            return Path(str(huggingface_hub.snapshot_download(repo, allow_patterns=patterns)))
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise ModelNotFoundError(
            f"there is no file {name!r}, and {repo} did not come from the Hugging Face hub "
            f"({_first_sentence(error)}). Without a connection: download it elsewhere (hf download "
            f"{repo}), copy the folder here and give its path; a gated model needs hf auth login"
        ) from error


@contextmanager
def _progress_bars(wanted: bool) -> Iterator[None]:
    """The hub library's own switch is a global one."""
    from huggingface_hub import utils

    if wanted or utils.are_progress_bars_disabled():  # type: ignore[attr-defined]
        yield
        return
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        utils.enable_progress_bars()  # type: ignore[attr-defined]


def _first_sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
