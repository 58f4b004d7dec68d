"""Drafts for speculative decoding: one a file, behind one interface (`base.Draft`)."""
