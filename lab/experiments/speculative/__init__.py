"""The `speculative` experiment."""
