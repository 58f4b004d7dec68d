"""The `beam_search` experiment."""
