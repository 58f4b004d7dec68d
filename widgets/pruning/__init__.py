"""The page of the `pruning` experiment."""
