"""``intattention serve``: OpenAI-compatible HTTP; needs the extra "serve"."""
