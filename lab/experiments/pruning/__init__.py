"""The `pruning` experiment."""
