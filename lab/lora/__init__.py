"""Low-rank adapters: trained, attached, merged, swapped and read from files."""
