"""What a model's answers are worth: perplexity and distance to float, for our own runtime."""
