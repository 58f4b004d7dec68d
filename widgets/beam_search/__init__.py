"""The page of the `beam_search` experiment."""
