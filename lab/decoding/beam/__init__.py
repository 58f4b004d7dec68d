"""Beam search: the search over any distribution, and the model's rows that feed it."""
