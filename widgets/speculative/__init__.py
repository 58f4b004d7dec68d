"""The page of the `speculative` experiment."""
