"""Exceptions that say what is wrong with a model file, a name or a request."""

from intattention._core import ContextOverflowError, NumericError

__all__ = [
    "ContextOverflowError",
    "IntAttentionError",
    "ModelFileError",
    "ModelNotFoundError",
    "NumericError",
    "SessionFileError",
    "UnsupportedModelError",
]


class IntAttentionError(Exception):
    """Base class of the errors that the Python side raises itself."""


class ModelFileError(IntAttentionError, ValueError):
    """The file is not a valid model file: truncated, damaged or hostile."""


class UnsupportedModelError(IntAttentionError, ValueError):
    """The file is valid, but asks for something that this version does not implement."""


class SessionFileError(IntAttentionError, ValueError):
    """The file is not a valid session file, or its session is another model's."""


class ModelNotFoundError(IntAttentionError, LookupError):
    """No such file and no such model name."""
