"""Accuracy of rankings: ties by expectation, several roots, chance."""

from itertools import permutations

import numpy as np
import pytest

from fedgranger.errors import DataError
from fedgranger.rca.ranking_metrics import Instance, chance_hits, evaluate_rankings, hits


def by_all_orders(scores, roots):
    """Chance that a root is among the first k, by going through every order of ties."""
    M = len(scores)
    total, count = np.zeros(M), 0
    for order in permutations(range(M)):
        ranked = sorted(order, key=lambda m: -scores[m])  # stable: ties keep the drawn order
        first = min(ranked.index(root) for root in roots)
        total[first:] += 1
        count += 1
    return total / count


@pytest.mark.parametrize(
    ("scores", "roots"),
    [
        ([3, 2, 1, 0], (1,)),
        ([1, 1, 1, 1], (2,)),
        ([2, 1, 1, 0], (1,)),
        ([2, 1, 1, 1], (1, 3)),
        ([0, 5, 5, 5], (0, 2)),
        ([1, 1, 0, 0], (2, 3)),
    ],
)
def test_hits_vs_all_orders(scores, roots):
    found = hits(Instance(np.array(scores, float), roots))
    np.testing.assert_allclose(found, by_all_orders(scores, roots), atol=1e-12)


def test_chance():
    np.testing.assert_allclose(chance_hits(9, 1), np.arange(1, 10) / 9)
    np.testing.assert_allclose(chance_hits(3, 1)[:2], [1 / 3, 2 / 3])


def test_means_over_instances():
    right, wrong = Instance(np.array([2.0, 1, 0]), (0,)), Instance(np.array([2.0, 1, 0]), (2,))
    tied = Instance(np.zeros(3), (1,))
    found = evaluate_rankings([right, right, wrong, tied])
    assert found.ac == pytest.approx([(1 + 1 + 0 + 1 / 3) / 4, (1 + 1 + 0 + 2 / 3) / 4, 1.0])
    assert found.avg == pytest.approx(np.cumsum(found.ac) / [1, 2, 3])
    assert found.mrr == pytest.approx((1 + 1 + 1 / 3 + (1 + 1 / 2 + 1 / 3) / 3) / 4)
    assert found.balanced == pytest.approx((1 + 0 + 1 / 3) / 3)
    assert found.undefined == 0.25
    low, high = found.ac1_interval
    assert 0 <= low < found.ac[0] < high <= 1


def test_scores_decide_not_the_order_of_clients():
    rng = np.random.default_rng(0)
    instances = [
        Instance(rng.integers(0, 3, 5).astype(float), (int(rng.integers(5)),)) for _ in range(50)
    ]
    turned = [Instance(i.scores[::-1], (4 - i.roots[0],)) for i in instances]
    np.testing.assert_allclose(evaluate_rankings(instances).ac, evaluate_rankings(turned).ac)


def test_nothing_to_score_is_said():
    with pytest.raises(DataError, match="no anomaly"):
        evaluate_rankings([])
    with pytest.raises(DataError, match="no known root cause"):
        evaluate_rankings([Instance(np.zeros(2), ())])
