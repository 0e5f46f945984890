import numpy as np
import pytest

from altbi.errors import ParameterError
from altbi_bench.catalogue.datasets import Dataset, find_file, load, select
from altbi_bench.catalogue.protocols import PROTOCOLS, find_protocol, sample_table

# Which promise that no row is in both; the others fit on rows that they score.
DISJOINT = ("semi", "semi-code", "split")
SEMISUPERVISED = ("semi", "semi-code", "semi-dte")


def labels(n_rows, n_outliers, seed=0):
    """Outliers at random places."""
    y = np.zeros(n_rows, dtype=np.int64)
    y[np.random.default_rng(seed).choice(n_rows, n_outliers, replace=False)] = 1
    return y


def toy(official_outliers=None):
    return Dataset("toy", "", "table", "", (), official_outliers)


def split(name, y, seed=0, official_outliers=None):
    return PROTOCOLS[name].split(y, toy(official_outliers), seed)


def rows_of(found):
    return found.train.tolist(), found.test.tolist()


def counts(y, rows):
    """Inliers and outliers among some rows."""
    return tuple(np.bincount(y[rows], minlength=2).tolist())


class TestAll:
    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_the_same_seed_gives_the_same_rows(self, name):
        y = labels(700, 50)

        assert rows_of(split(name, y, 3)) == rows_of(split(name, y, 3))

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_another_seed_gives_other_rows_where_that_is_said(self, name):
        y = labels(700, 50)

        moved = rows_of(split(name, y, 3, 40)) != rows_of(split(name, y, 4, 40))

        assert moved is PROTOCOLS[name].seeded

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_the_callers_generator_is_left_alone(self, name):
        np.random.seed(5)  # noqa: NPY002
        expected = np.random.random()  # noqa: NPY002
        np.random.seed(5)  # noqa: NPY002

        split(name, labels(700, 50))

        assert np.random.random() == expected  # noqa: NPY002

    @pytest.mark.parametrize("name", DISJOINT)
    def test_no_row_is_in_both_and_none_twice(self, name):
        found = split(name, labels(700, 50))

        rows = np.concatenate([found.train, found.test])
        assert len(np.unique(rows)) == len(rows)

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_outliers_are_in_the_fit_only_where_the_setting_is_unsupervised(self, name):
        y = labels(700, 50)

        found = split(name, y)

        assert bool(y[found.train].any()) is (PROTOCOLS[name].setting == "unsupervised")
        assert set(y[found.test]) == {0, 1}

    def test_three_are_semi_supervised(self):
        names = [name for name, each in PROTOCOLS.items() if each.setting == "semisupervised"]

        assert tuple(names) == SEMISUPERVISED

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_only_the_transductive_ones_score_their_own_rows(self, name):
        found = split(name, labels(700, 50))

        assert found.scores_training_rows is (name in ("transductive", "official"))

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_scaling_is_by_the_rows_of_the_fit_but_for_dte(self, name):
        found = split(name, labels(700, 50))

        assert found.scale is (found.test if name == "dte" else None)

    def test_an_unknown_one_is_refused(self):
        with pytest.raises(ParameterError, match=r"called 'semy'. Expected one of: transductive, "):
            find_protocol("semy")

    def test_a_known_one_is_found(self):
        assert find_protocol("split") is PROTOCOLS["split"]


class TestTransductive:
    def test_all_rows_are_fitted_on_and_scored_in_the_order_of_the_file(self):
        found = split("transductive", labels(70, 5))

        assert rows_of(found) == (list(range(70)), list(range(70)))


class TestOfficial:
    def test_all_inliers_stay_and_outliers_of_the_stated_number(self):
        y = labels(200, 30)

        found = split("official", y, official_outliers=20)

        assert counts(y, found.train) == (170, 20)
        assert (np.diff(found.train) > 0).all()

    def test_without_a_number_a_twentieth_of_the_rows_are_outliers(self):
        y = labels(2_500, 600)

        # 1,900 inliers are 95 % of 2,000 rows.
        assert counts(y, split("official", y).train) == (1_900, 100)

    def test_the_share_of_a_twentieth_is_cut_to_whole_rows(self):
        y = labels(130, 20)

        # 110 inliers are 95 % of 115.8 rows: 5.8 outliers.
        assert counts(y, split("official", y).train) == (110, 5)

    def test_the_outliers_that_stay_are_those_of_the_seed(self):
        """Lines of before would be about other rows if they were drawn otherwise."""
        y = labels(200, 30)
        outliers = np.flatnonzero(y)

        found = split("official", y, seed=7, official_outliers=4).train

        drawn = np.random.default_rng(7).choice(30, 4, replace=False)
        assert sorted(found[y[found] == 1]) == sorted(outliers[drawn])

    @pytest.mark.parametrize("stated", [None, 50])
    def test_no_more_are_kept_than_there_are(self, stated):
        y = labels(400, 3)

        assert counts(y, split("official", y, official_outliers=stated).train) == (397, 3)

    def test_a_sample_keeps_the_same_share(self):
        dataset, part = find_file("Classical/31_satimage-2.npz")
        assert (part.n_outliers, dataset.official_outliers) == (71, 57)
        y = labels(1_000, 36)

        assert counts(y, PROTOCOLS["official"].split(y, dataset, 0).train) == (964, 29)

    @pytest.mark.parametrize(
        ("file", "kept"),
        [
            ("Classical/31_satimage-2.npz", 57),
            ("Classical/38_thyroid.npz", 75),
            ("Classical/14_glass.npz", 8),
            ("Classical/29_Pima.npz", 257),
            ("Classical/42_WBC.npz", 9),
            ("Classical/4_breastw.npz", 239),
            ("CV_by_ViT/MVTec-AD_bottle.npz", 12),
            ("CV_by_ResNet18/MVTec-AD_bottle.npz", 12),
        ],
    )
    def test_counts_are_those_that_the_authors_numbers_show(self, file, kept):
        dataset, part = find_file(file)
        y = labels(part.n_rows, part.n_outliers)

        found = PROTOCOLS["official"].split(y, dataset, 0)

        assert counts(y, found.test) == (part.n_rows - part.n_outliers, kept)


class TestDTE:
    @pytest.mark.parametrize(
        ("n_rows", "n_test", "copies"), [(999, 1000, True), (1000, 1000, False)]
    )
    def test_small_files_are_resampled_with_copies(self, n_rows, n_test, copies):
        found = split("dte", labels(n_rows, 100))

        assert len(found.test) == len(found.train) == n_test
        assert (len(np.unique(found.test)) < n_test) is copies

    @pytest.mark.parametrize("n_rows", [50_000, 50_001])
    def test_large_files_are_cut_without_copies(self, n_rows):
        found = split("dte", labels(n_rows, 100))

        assert len(np.unique(found.test)) == len(found.test) == 50_000

    def test_the_rows_of_the_fit_are_a_bootstrap_of_those_of_the_test(self):
        found = split("dte", labels(2000, 100))

        assert found.test.tolist() == list(range(2000))
        assert set(found.train) < set(found.test)
        # 1 - 1/e of the rows, give or take five deviations.
        assert len(np.unique(found.train)) == pytest.approx(2000 * (1 - np.exp(-1)), abs=70)

    @pytest.mark.parametrize("n_rows", [300, 1200, 50_001])
    def test_draws_are_those_of_the_published_code_line_by_line(self, n_rows):
        y = labels(n_rows, 40)

        found = split("dte", y, seed=6)

        state = np.random.RandomState(6)
        rows = np.arange(n_rows)
        if n_rows < 1000:
            rows = state.choice(rows, 1000, replace=True)
        if n_rows > 50_000:
            rows = state.choice(rows, 50_000, replace=False)
        state.choice(np.where(y[rows] == 1)[0], 0, replace=False)
        train = rows[state.choice(np.arange(len(rows)), len(rows), replace=True)]
        assert rows_of(found) == (train.tolist(), rows.tolist())


class TestSemi:
    @pytest.mark.parametrize(
        ("name", "train", "test"),
        [
            ("semi", (140, 0), (60, 100)),
            ("semi-code", (120, 0), (80, 40)),
            ("split", (140, 70), (60, 30)),
        ],
    )
    def test_sizes_are_as_stated(self, name, train, test):
        y = labels(300, 100)

        found = split(name, y)

        assert (counts(y, found.train), counts(y, found.test)) == (train, test)

    @pytest.mark.parametrize(
        ("name", "train", "test"),
        [
            ("semi", (78, 0), (33, 58)),  # 77.7
            ("semi-code", (67, 0), (44, 23)),  # 66.6 and 34.8
            ("split", (78, 41), (33, 17)),  # 77.7 and 40.6
        ],
    )
    def test_shares_are_rounded(self, name, train, test):
        y = labels(169, 58)

        found = split(name, y)

        assert (counts(y, found.train), counts(y, found.test)) == (train, test)

    @pytest.mark.parametrize("name", DISJOINT)
    def test_rows_keep_the_order_of_the_file(self, name):
        found = split(name, labels(230, 30))

        assert (np.diff(found.train) > 0).all()
        assert (np.diff(found.test) > 0).all()

    @pytest.mark.parametrize("name", DISJOINT)
    def test_rows_of_the_fit_are_drawn_and_not_the_first_ones(self, name):
        y = labels(230, 30)

        found = split(name, y)

        inliers = np.flatnonzero(y == 0)
        fitted = np.isin(inliers, found.train)
        assert 0 < fitted[: len(inliers) // 2].sum() < len(inliers) // 2

    def test_dte_fits_on_the_first_half_of_the_inliers_in_the_order_of_the_file(self):
        y = labels(1201, 100)

        found = split("semi-dte", y)

        inliers, outliers = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
        # round(550.5) is 550: halves go to the even number, as in the published code.
        assert found.train.tolist() == inliers[:550].tolist()
        assert found.test.tolist() == [*inliers[550:], *outliers]

    def test_dte_resamples_small_files_before_the_split_so_that_copies_are_in_both(self):
        y = labels(300, 60)

        found = split("semi-dte", y, seed=6)

        rows = np.random.RandomState(6).choice(300, 1000)
        inliers, outliers = rows[y[rows] == 0], rows[y[rows] == 1]
        half = round(0.5 * len(inliers))
        assert found.train.tolist() == inliers[:half].tolist()
        assert found.test.tolist() == [*inliers[half:], *outliers]
        assert set(found.train) & set(found.test)

    def test_dte_has_the_same_rows_for_all_seeds_where_nothing_is_resampled(self):
        y = labels(1200, 60)

        assert rows_of(split("semi-dte", y, 0)) == rows_of(split("semi-dte", y, 1))


class TestSampled:
    def table(self, n_rows, n_outliers):
        return np.arange(2.0 * n_rows).reshape(n_rows, 2), labels(n_rows, n_outliers)

    @pytest.mark.parametrize("most_rows", [None, 100, 101])
    def test_a_table_that_is_not_larger_is_left_as_it_is(self, most_rows):
        X, y = self.table(100, 10)

        found = sample_table(X, y, most_rows)

        assert found[0] is X
        assert found[1] is y

    @pytest.mark.parametrize(("n_outliers", "kept"), [(700, 70), (704, 70), (706, 71), (3, 1)])
    def test_the_share_of_outliers_stays_and_one_at_least(self, n_outliers, kept):
        X, y = self.table(10_000, n_outliers)

        rows, found = sample_table(X, y, 1_000)

        assert (len(rows), len(found), int(found.sum())) == (1_000, 1_000, kept)

    def test_order_stays_and_labels_stay_with_their_rows(self):
        X, y = self.table(5_000, 400)

        rows, found = sample_table(X, y, 600)

        taken = (rows[:, 0] / 2).astype(int)
        # The rows behind all committed lines: another generator or seed would move them unseen.
        assert taken[:8].tolist() == [1, 11, 22, 26, 30, 36, 40, 49]
        assert (np.diff(taken) > 0).all()
        np.testing.assert_array_equal(rows, X[taken])
        np.testing.assert_array_equal(found, y[taken])

    def test_it_is_the_same_for_each_call_and_spread_over_the_table(self):
        X, y = self.table(5_000, 400)

        first, second = (sample_table(X, y, 600)[0] for _ in range(2))

        np.testing.assert_array_equal(first, second)
        assert 200 < (first[:, 0] < X[2_500, 0]).sum() < 400

    def test_the_callers_generator_is_left_alone(self):
        np.random.seed(5)  # noqa: NPY002
        expected = np.random.random()  # noqa: NPY002
        np.random.seed(5)  # noqa: NPY002

        sample_table(*self.table(5_000, 400), 600)

        assert np.random.random() == expected  # noqa: NPY002

    def test_a_real_table_keeps_its_share(self, adbench):
        (dataset,) = select(["mammography"])
        X, y = load(dataset.files[0])

        rows, found = sample_table(X, y, 5_000)

        # 260 of 11,183 rows are outliers: 116.2 of 5,000.
        assert (len(rows), int(found.sum())) == (5_000, 116)
