"""Integer attention inside other libraries, which must be installed."""
