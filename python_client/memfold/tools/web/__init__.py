"""The page for viewing memories, judging and undoing. Needs the extra ``memfold[web]``."""

from __future__ import annotations

from memfold.client._extras import needs

with needs("web"):
    from memfold.tools.web.app import make_app
    from memfold.tools.web.database import Place
    from memfold.tools.web.serving import serve

__all__ = ["Place", "make_app", "serve"]
