"""A store of texts that can be asked what followed a run of tokens: a suffix array, built once, mapped from disk."""
