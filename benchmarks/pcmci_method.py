"""PCMCI of tigramite beside the other methods, in the peers' own environment (tigramite is GPL).

    make bench-peers       # makes the environment .venv-peers and compares PCMCI with all peers
    .venv-peers/bin/fedgranger benchmark --add benchmarks/pcmci_method.py --methods pcmci

The package never imports this file, and nothing here is part of it.
"""

import importlib.util

import numpy as np

from fedgranger.inference.decision import adjust
from fedgranger_research.baselines.method_protocol import EdgeScores, Method, Post, by_client
from fedgranger_research.baselines.peers import longest_stretch

if importlib.util.find_spec("tigramite") is None:
    raise ImportError(
        "PCMCI needs the package tigramite, which has an environment of its own because of its "
        "licence; make it with: make bench-peers"
    )


def fit(columns, options):
    """ParCorr at lag one, Benjamini-Hochberg over entries, Bonferroni within pairs of clients."""
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    post = Post()
    for part in columns.series:
        post.carry(part)
    frame = data_processing.DataFrame(longest_stretch(columns).copy())
    search = PCMCI(dataframe=frame, cond_ind_test=ParCorr(), verbosity=0)
    found = search.run_pcmci(tau_min=1, tau_max=1, pc_alpha=options["pc_alpha"])
    p = found["p_matrix"][:, :, 1].T  # tigramite has [cause, effect]
    score = np.abs(found["val_matrix"][:, :, 1].T)
    dims, alpha = columns.dims, options["alpha"]
    client_p = np.minimum(-by_client(-p, dims) * np.outer(dims, dims), 1.0)
    is_client_edge = np.eye(len(dims), dtype=bool)
    across = ~is_client_edge
    is_client_edge[across] = adjust(client_p[across], "bh") <= alpha
    return EdgeScores(
        score,
        adjust(p.reshape(-1), "bh").reshape(p.shape) <= alpha,
        by_client(score, dims),
        is_client_edge,
        0.0,
        post.messages,
        post.bytes_sent,
        "direct",
        float("nan"),
    )


METHODS = {
    "pcmci": Method(fit, {"alpha": 0.05, "pc_alpha": 0.05}, "central", "PCMCI with ParCorr"),
}
