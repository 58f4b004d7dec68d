"""Speculative decoding: the accept/reject rule, its loop, its figures and its exactness trial."""
