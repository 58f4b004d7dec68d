"""Ratios measured side by side with what a user would run instead."""
