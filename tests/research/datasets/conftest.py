"""Where the real data are, and made files that several tests read."""

import numpy as np
import pytest

from fedgranger_research import datasets
from tests.dataset_files import make_batadal, write_batadal, write_tep
from tests.published_files import development_data


@pytest.fixture(scope="session")
def real():
    """Folder of the real data; absent in a plain checkout."""
    return development_data()


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)


@pytest.fixture(scope="session")
def tep_files(tmp_path_factory):
    """Made TEP: the published folder, the numbers."""
    folder = tmp_path_factory.mktemp("tep")
    matrices = write_tep(folder / "dat", np.random.default_rng(4))
    return folder / "dat", matrices


@pytest.fixture(scope="session")
def tep_data(tep_files):
    return datasets.load("tep", tep_files[0])


@pytest.fixture(scope="session")
def batadal_frames():
    return make_batadal(np.random.default_rng(5))


@pytest.fixture(scope="session")
def batadal_data(batadal_frames, tmp_path_factory):
    """The authors' files: folder and what was read from them."""
    folder = tmp_path_factory.mktemp("batadal") / "csv"
    write_batadal(folder, batadal_frames)
    return folder, datasets.load("batadal", folder)
