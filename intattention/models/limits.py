"""Sizes beyond which a file is not believed."""

MAX_DIM = 1 << 20
MAX_HEADS = 4096
MAX_LAYERS = 1024
MAX_CONTEXT = 1 << 24
MAX_VOCAB = 1 << 24
