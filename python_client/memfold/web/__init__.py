"""The page for viewing memories, judging and undoing. Needs the extra ``memfold[web]``."""

from __future__ import annotations

from memfold._extras import needs

with needs("web"):
    from memfold.web.app import make_app
    from memfold.web.database import Place
    from memfold.web.serving import serve

__all__ = ["Place", "make_app", "serve"]
