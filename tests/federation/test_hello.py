"""What the server demands of a client's first answer about its states."""

import numpy as np
import pytest

from fedgranger.federation.codec import MessageError, Packet
from fedgranger.federation.validation import check_answer

VALUES = {"own_lags": 2, "is_declared": False, "noise_share": 0.5, "clipped_share": 0.0}
ARRAYS = {
    "error_cov": np.diag([0.2, 0.0]),
    "periods": np.array([24]),
    "added_cov": np.zeros((2, 2)),
}


def check(values=None, arrays=None):
    packet = Packet("hello", "r", "a", VALUES | (values or {}), ARRAYS | (arrays or {}))
    check_answer("begin", {}, None, packet)


def test_an_honest_one_is_taken():
    check()
    check({"noise_share": 0.0, "is_declared": True})
    check({"noise_share": 1.0}, {"periods": np.zeros(0, dtype=np.int64)})


@pytest.mark.parametrize(
    ("values", "arrays", "sentence"),
    [
        ({"noise_share": -1e-9}, {}, "share of noise is not between 0 and 1"),
        ({"noise_share": 1.5}, {}, "share of noise is not between 0 and 1"),
        ({"own_lags": 0}, {}, "own lags is out of range"),
        ({"own_lags": 10**6}, {}, "own lags is out of range"),
        ({}, {"error_cov": np.array([[1.0, 2.0], [2.0, 1.0]])}, "not symmetric positive"),
        ({}, {"error_cov": np.array([[1.0, 0.5], [0.0, 1.0]])}, "not symmetric positive"),
        ({}, {"error_cov": np.ones((1, 2))}, "its matrix does not fit"),
        ({}, {"added_cov": np.array([[1.0, 2.0], [2.0, 1.0]])}, "noise covariance is not"),
        ({}, {"added_cov": np.zeros((1, 1))}, "its matrix does not fit"),
        ({"clipped_share": 1.1}, {}, "share of clipped states"),
        ({"clipped_share": -0.1}, {}, "share of clipped states"),
        ({}, {"periods": np.array([24, 24])}, "periods are not"),
        ({}, {"periods": np.array([1])}, "periods are not"),
    ],
)
def test_an_altered_one_is_refused(values, arrays, sentence):
    with pytest.raises(MessageError, match=sentence):
        check(values, arrays)
