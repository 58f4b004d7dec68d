"""The `kv_cache` experiment: what remembering costs."""
