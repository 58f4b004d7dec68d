"""The token loop over a loaded model: sampling, traces, cache layouts and the fast path."""
