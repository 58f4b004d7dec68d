"""Headers of the pages' server, the content security policy among them, as tight as Voila and its widgets allow."""

from __future__ import annotations

from collections.abc import Sequence

from lab.backend.headers import COMMON

# Voila's template and the widget manager run inline scripts, anywidget loads each view from a blob, and the widget
# manager makes functions from text. Everything else comes from this server: no other host is asked, nor told anything.
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "frame-src": "'none'",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}


def page_headers(framed_by: Sequence[str] = ()) -> dict[str, str]:
    """The headers of every answer that is no data.

    Args:
        framed_by: origins whose pages may show this one in a frame.
    """
    policy = {**_POLICY, "frame-ancestors": " ".join(framed_by) or "'none'"}
    headers = {**COMMON, "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items())}
    if not framed_by:
        headers["x-frame-options"] = "DENY"  # for browsers that do not know frame-ancestors; it takes no list
    return headers
