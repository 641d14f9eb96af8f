"""What a benchmark refuses."""

from intattention.errors import IntAttentionError


class BenchError(IntAttentionError, RuntimeError):
    """A result that is wrong, so that its time means nothing; or a setting that cannot be run."""
