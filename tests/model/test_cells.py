import numpy as np
import pyarrow as pa
import pytest

from altbi.model._cells import MIN_CELL_SCORE, TopCells, choose_cells


def find(scores, limit, n_batch):
    """Return the result for a table whose column "number" has the number of the row."""
    top = TopCells(limit)
    for first in range(0, len(scores), n_batch):
        block = scores[first : first + n_batch]
        numbers = pa.array(np.arange(first, first + len(block)))
        batch = pa.RecordBatch.from_arrays([numbers], names=["number"])
        top.add(batch, choose_cells(block, limit))
    return top, top.sort()


@pytest.fixture(scope="module")
def scores():
    """Return scores with many ties."""
    return np.random.default_rng(0).integers(0, 9, (500, 4)).astype(float)


@pytest.mark.parametrize("n_batch", [1, 7, 100, 500])
@pytest.mark.parametrize("limit", [1, 13, 300, 5000])
def test_highest_cells_are_sorted_by_score_and_place(scores, limit, n_batch):
    rows, columns = np.indices(scores.shape)
    order = np.argsort(-scores, axis=None, kind="stable")
    order = order[scores.flat[order] >= MIN_CELL_SCORE][:limit]

    top, found = find(scores, limit, n_batch)

    assert top.n_rows == 500
    assert found.scores.tolist() == scores.flat[order].tolist()
    assert found.rows.tolist() == rows.flat[order].tolist()
    assert found.columns.tolist() == columns.flat[order].tolist()


def test_each_row_with_a_cell_is_kept_once(scores):
    _, found = find(scores, 300, 50)

    numbers = found.table["number"].to_numpy()
    assert numbers.tolist() == sorted(set(found.rows.tolist()))
    assert (numbers[found.indices] == found.rows).all()


def test_stored_cells_are_bounded():
    top = TopCells(10)
    for _ in range(100):
        batch = pa.RecordBatch.from_arrays([pa.array(range(50))], names=["number"])
        top.add(batch, choose_cells(np.full((50, 3), 2.0), 10))
        assert sum(len(batch) for batch in top._batches) <= 50
        assert sum(len(cells.scores) for cells in top._cells) <= 50


def test_usual_cells_are_not_chosen():
    scores = np.array([[0.0, MIN_CELL_SCORE], [0.99, 7.0]])

    cells = choose_cells(scores, 9)

    assert (cells.rows.tolist(), cells.columns.tolist()) == ([0, 1], [1, 1])
    assert len(find(np.zeros((5, 2)), 3, 2)[1].table) == 0
