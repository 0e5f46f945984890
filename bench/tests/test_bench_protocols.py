import numpy as np
import pytest

from altbi.errors import ParameterError
from altbi_bench.catalogue.datasets import Dataset, find_file, load, select
from altbi_bench.catalogue.protocols import PROTOCOLS, find_protocol, sample_table

# Protocols with disjoint training and test rows.
DISJOINT = ("semi", "semi-code", "split")
SEMISUPERVISED = ("semi", "semi-code", "semi-dte")


def build_labels(n_rows, n_outliers, seed=0):
    """Return labels with outliers at random positions."""
    y = np.zeros(n_rows, dtype=np.int64)
    y[np.random.default_rng(seed).choice(n_rows, n_outliers, replace=False)] = 1
    return y


def build_dataset(official_outliers=None):
    return Dataset("toy", "", "table", "", (), official_outliers)


def split_by(name, y, seed=0, official_outliers=None):
    return PROTOCOLS[name].split(y, build_dataset(official_outliers), seed)


def list_rows(found):
    return found.train.tolist(), found.test.tolist()


def count_classes(y, rows):
    """Return the numbers of inliers and outliers among some rows."""
    return tuple(np.bincount(y[rows], minlength=2).tolist())


class TestAll:
    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_the_same_seed_gives_the_same_rows(self, name):
        y = build_labels(700, 50)

        assert list_rows(split_by(name, y, 3)) == list_rows(split_by(name, y, 3))

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_seed_changes_rows_of_seeded_protocols(self, name):
        y = build_labels(700, 50)

        moved = list_rows(split_by(name, y, 3, 40)) != list_rows(split_by(name, y, 4, 40))

        assert moved is PROTOCOLS[name].seeded

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_global_random_state_is_unchanged(self, name):
        np.random.seed(5)  # noqa: NPY002
        expected = np.random.random()  # noqa: NPY002
        np.random.seed(5)  # noqa: NPY002

        split_by(name, build_labels(700, 50))

        assert np.random.random() == expected  # noqa: NPY002

    @pytest.mark.parametrize("name", DISJOINT)
    def test_training_and_test_rows_are_disjoint(self, name):
        found = split_by(name, build_labels(700, 50))

        rows = np.concatenate([found.train, found.test])
        assert len(np.unique(rows)) == len(rows)

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_only_unsupervised_training_has_outliers(self, name):
        y = build_labels(700, 50)

        found = split_by(name, y)

        assert bool(y[found.train].any()) is (PROTOCOLS[name].setting == "unsupervised")
        assert set(y[found.test]) == {0, 1}

    def test_three_protocols_are_semi_supervised(self):
        names = [name for name, each in PROTOCOLS.items() if each.setting == "semisupervised"]

        assert tuple(names) == SEMISUPERVISED

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_only_transductive_protocols_score_training_rows(self, name):
        found = split_by(name, build_labels(700, 50))

        assert found.scores_training_rows is (name in ("transductive", "official"))

    @pytest.mark.parametrize("name", PROTOCOLS)
    def test_only_dte_scales_by_test_rows(self, name):
        found = split_by(name, build_labels(700, 50))

        assert found.scale is (found.test if name == "dte" else None)

    def test_unknown_protocol_raises(self):
        with pytest.raises(ParameterError, match=r"called 'semy'. Expected one of: transductive, "):
            find_protocol("semy")

    def test_protocol_is_found_by_name(self):
        assert find_protocol("split") is PROTOCOLS["split"]


class TestTransductive:
    def test_all_rows_are_trained_and_scored_in_order(self):
        found = split_by("transductive", build_labels(70, 5))

        assert list_rows(found) == (list(range(70)), list(range(70)))


class TestOfficial:
    def test_inliers_and_stated_number_of_outliers_stay(self):
        y = build_labels(200, 30)

        found = split_by("official", y, official_outliers=20)

        assert count_classes(y, found.train) == (170, 20)
        assert (np.diff(found.train) > 0).all()

    def test_default_share_of_outliers_is_a_twentieth(self):
        y = build_labels(2_500, 600)

        # 1,900 inliers are 95 % of 2,000 rows.
        assert count_classes(y, split_by("official", y).train) == (1_900, 100)

    def test_number_of_outliers_is_rounded_down(self):
        y = build_labels(130, 20)

        # 110 inliers are 95 % of 115.8 rows: 5.8 outliers.
        assert count_classes(y, split_by("official", y).train) == (110, 5)

    def test_kept_outliers_are_those_of_the_seed(self):
        """Earlier records would be of other rows if the sampling changed."""
        y = build_labels(200, 30)
        outliers = np.flatnonzero(y)

        found = split_by("official", y, seed=7, official_outliers=4).train

        chosen = np.random.default_rng(7).choice(30, 4, replace=False)
        assert sorted(found[y[found] == 1]) == sorted(outliers[chosen])

    @pytest.mark.parametrize("stated", [None, 50])
    def test_at_most_all_outliers_are_kept(self, stated):
        y = build_labels(400, 3)

        assert count_classes(y, split_by("official", y, official_outliers=stated).train) == (397, 3)

    def test_sample_keeps_the_share_of_outliers(self):
        dataset, part = find_file("Classical/31_satimage-2.npz")
        assert (part.n_outliers, dataset.official_outliers) == (71, 57)
        y = build_labels(1_000, 36)

        assert count_classes(y, PROTOCOLS["official"].split(y, dataset, 0).train) == (964, 29)

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
    def test_counts_agree_with_the_authors_numbers(self, file, kept):
        dataset, part = find_file(file)
        y = build_labels(part.n_rows, part.n_outliers)

        found = PROTOCOLS["official"].split(y, dataset, 0)

        assert count_classes(y, found.test) == (part.n_rows - part.n_outliers, kept)


class TestDTE:
    @pytest.mark.parametrize(
        ("n_rows", "n_test", "copies"), [(999, 1000, True), (1000, 1000, False)]
    )
    def test_small_files_are_sampled_with_replacement(self, n_rows, n_test, copies):
        found = split_by("dte", build_labels(n_rows, 100))

        assert len(found.test) == len(found.train) == n_test
        assert (len(np.unique(found.test)) < n_test) is copies

    @pytest.mark.parametrize("n_rows", [50_000, 50_001])
    def test_large_files_are_sampled_without_replacement(self, n_rows):
        found = split_by("dte", build_labels(n_rows, 100))

        assert len(np.unique(found.test)) == len(found.test) == 50_000

    def test_training_rows_are_a_bootstrap_of_test_rows(self):
        found = split_by("dte", build_labels(2000, 100))

        assert found.test.tolist() == list(range(2000))
        assert set(found.train) < set(found.test)
        # The expected share is 1 - 1/e, with a tolerance of five standard errors.
        assert len(np.unique(found.train)) == pytest.approx(2000 * (1 - np.exp(-1)), abs=70)

    @pytest.mark.parametrize("n_rows", [300, 1200, 50_001])
    def test_random_rows_equal_those_of_published_code(self, n_rows):
        y = build_labels(n_rows, 40)

        found = split_by("dte", y, seed=6)

        state = np.random.RandomState(6)
        rows = np.arange(n_rows)
        if n_rows < 1000:
            rows = state.choice(rows, 1000, replace=True)
        if n_rows > 50_000:
            rows = state.choice(rows, 50_000, replace=False)
        state.choice(np.where(y[rows] == 1)[0], 0, replace=False)
        train = rows[state.choice(np.arange(len(rows)), len(rows), replace=True)]
        assert list_rows(found) == (train.tolist(), rows.tolist())


class TestSemi:
    @pytest.mark.parametrize(
        ("name", "train", "test"),
        [
            ("semi", (140, 0), (60, 100)),
            ("semi-code", (120, 0), (80, 40)),
            ("split", (140, 70), (60, 30)),
        ],
    )
    def test_shares_of_training_rows_are_as_stated(self, name, train, test):
        y = build_labels(300, 100)

        found = split_by(name, y)

        assert (count_classes(y, found.train), count_classes(y, found.test)) == (train, test)

    @pytest.mark.parametrize(
        ("name", "train", "test"),
        [
            ("semi", (78, 0), (33, 58)),  # 77.7
            ("semi-code", (67, 0), (44, 23)),  # 66.6 and 34.8
            ("split", (78, 41), (33, 17)),  # 77.7 and 40.6
        ],
    )
    def test_shares_are_rounded(self, name, train, test):
        y = build_labels(169, 58)

        found = split_by(name, y)

        assert (count_classes(y, found.train), count_classes(y, found.test)) == (train, test)

    @pytest.mark.parametrize("name", DISJOINT)
    def test_rows_keep_their_order(self, name):
        found = split_by(name, build_labels(230, 30))

        assert (np.diff(found.train) > 0).all()
        assert (np.diff(found.test) > 0).all()

    @pytest.mark.parametrize("name", DISJOINT)
    def test_training_rows_are_sampled_at_random(self, name):
        y = build_labels(230, 30)

        found = split_by(name, y)

        inliers = np.flatnonzero(y == 0)
        fitted = np.isin(inliers, found.train)
        assert 0 < fitted[: len(inliers) // 2].sum() < len(inliers) // 2

    def test_dte_trains_on_the_first_half_of_inliers(self):
        y = build_labels(1201, 100)

        found = split_by("semi-dte", y)

        inliers, outliers = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
        # round(550.5) is 550, as in the published code.
        assert found.train.tolist() == inliers[:550].tolist()
        assert found.test.tolist() == [*inliers[550:], *outliers]

    def test_dte_resamples_small_files_before_the_split(self):
        y = build_labels(300, 60)

        found = split_by("semi-dte", y, seed=6)

        rows = np.random.RandomState(6).choice(300, 1000)
        inliers, outliers = rows[y[rows] == 0], rows[y[rows] == 1]
        half = round(0.5 * len(inliers))
        assert found.train.tolist() == inliers[:half].tolist()
        assert found.test.tolist() == [*inliers[half:], *outliers]
        assert set(found.train) & set(found.test)

    def test_dte_without_resampling_ignores_the_seed(self):
        y = build_labels(1200, 60)

        assert list_rows(split_by("semi-dte", y, 0)) == list_rows(split_by("semi-dte", y, 1))


class TestSampled:
    def table(self, n_rows, n_outliers):
        return np.arange(2.0 * n_rows).reshape(n_rows, 2), build_labels(n_rows, n_outliers)

    @pytest.mark.parametrize("most_rows", [None, 100, 101])
    def test_small_table_is_not_sampled(self, most_rows):
        X, y = self.table(100, 10)

        found = sample_table(X, y, most_rows)

        assert found[0] is X
        assert found[1] is y

    @pytest.mark.parametrize(("n_outliers", "kept"), [(700, 70), (704, 70), (706, 71), (3, 1)])
    def test_sample_keeps_share_and_at_least_one_outlier(self, n_outliers, kept):
        X, y = self.table(10_000, n_outliers)

        rows, found = sample_table(X, y, 1_000)

        assert (len(rows), len(found), int(found.sum())) == (1_000, 1_000, kept)

    def test_sample_keeps_order_and_labels(self):
        X, y = self.table(5_000, 400)

        rows, found = sample_table(X, y, 600)

        taken = (rows[:, 0] / 2).astype(int)
        # All committed records use these rows, so generator and seed must not change.
        assert taken[:8].tolist() == [1, 11, 22, 26, 30, 36, 40, 49]
        assert (np.diff(taken) > 0).all()
        np.testing.assert_array_equal(rows, X[taken])
        np.testing.assert_array_equal(found, y[taken])

    def test_sample_is_reproducible_and_random(self):
        X, y = self.table(5_000, 400)

        first, second = (sample_table(X, y, 600)[0] for _ in range(2))

        np.testing.assert_array_equal(first, second)
        assert 200 < (first[:, 0] < X[2_500, 0]).sum() < 400

    def test_global_random_state_is_unchanged(self):
        np.random.seed(5)  # noqa: NPY002
        expected = np.random.random()  # noqa: NPY002
        np.random.seed(5)  # noqa: NPY002

        sample_table(*self.table(5_000, 400), 600)

        assert np.random.random() == expected  # noqa: NPY002

    def test_sample_of_a_real_table_keeps_its_share(self, adbench):
        (dataset,) = select(["mammography"])
        X, y = load(dataset.files[0])

        rows, found = sample_table(X, y, 5_000)

        # 260 of 11,183 rows are outliers: 116.2 of 5,000.
        assert (len(rows), int(found.sum())) == (5_000, 116)
