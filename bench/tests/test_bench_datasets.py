import csv
import hashlib
import io
import re
import zipfile
from importlib import resources

import numpy as np
import pytest

from altbi.errors import ParameterError, TableError
from altbi_bench.catalogue.datasets import (
    SUITES,
    DataFile,
    Dataset,
    adbench_folder,
    catalogue,
    find_file,
    is_available,
    load,
    load_table,
    locate,
    select,
)


def read_paper_summary():
    """Return the rows of the paper's Table B.1 by data set."""
    source = resources.files("altbi_bench") / "paper" / "datasets.csv"
    with source.open(encoding="utf-8") as lines:
        return {row["dataset"]: row for row in csv.DictReader(lines)}


def list_sizes(row):
    return tuple(int(row[name]) for name in ("n_rows", "n_features", "n_outliers"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an ADBench folder with one file of six rows, the last two of them outliers."""
    monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path))
    write_file(tmp_path / "toy.npz")
    return tmp_path


def write_file(path, **arrays):
    np.savez(path, **{"X": np.arange(12).reshape(6, 2), "y": [0, 0, 0, 0, 1, 1], **arrays})


TOY = DataFile("toy.npz", 6, 2, 2)


class TestCatalogue:
    def test_unknown_sizes_have_estimates_of_the_paper(self):
        unknown = [part for dataset in catalogue() for part in dataset.files if part.n_rows is None]

        assert len(unknown) == 104
        assert find_file("NLP_by_BERT/20news_0.npz")[1].rows_in_paper == 11_905
        assert all(part.rows_in_paper <= 20_000 for part in unknown)

    def test_catalogue_has_57_data_sets_in_195_files(self):
        names = [dataset.name for dataset in catalogue()]
        files = [part.path for dataset in catalogue() for part in dataset.files]

        assert len(set(names)) == 57
        assert len({dataset.label for dataset in catalogue()}) == len(names) == 67
        assert len(set(files)) == len(files) == 195

    @pytest.mark.slow
    def test_sizes_agree_with_table_b1(self):
        table = read_paper_summary()

        assert list(dict.fromkeys(each.name for each in catalogue())) == list(table)
        for dataset in catalogue():
            if dataset.kind == "table":
                (part,) = dataset.files
                found = (part.n_rows, part.n_features, part.n_outliers)
                assert found == list_sizes(table[dataset.name]), dataset.name
        # Some rows, copied from the paper by hand.
        assert list_sizes(table["aloi"]) == (49534, 27, 1508)
        assert list_sizes(table["census"]) == (299285, 500, 18568)
        assert list_sizes(table["yeast"]) == (1484, 8, 507)
        assert (table["fault"]["domain"], table["waveform"]["domain"]) == ("Physical", "Physics")

    @pytest.mark.parametrize("embedding", ["ResNet18", "ViT"])
    def test_mvtec_files_sum_to_the_papers_sizes(self, embedding):
        (dataset,) = select([f"MVTec-AD ({embedding})"])

        assert len(dataset.files) == 15
        assert sum(part.n_rows for part in dataset.files) == 5354
        assert sum(part.n_outliers for part in dataset.files) == 1258

    @pytest.mark.parametrize("name", ["CIFAR10", "SVHN"])
    def test_papers_image_sizes_are_of_one_file(self, name):
        (dataset,) = select([f"{name} (ResNet18)"])

        first = dataset.files[0]

        assert (first.n_rows, first.n_features, first.n_outliers) == list_sizes(
            read_paper_summary()[name]
        )

    def test_digests_of_83_files_are_unique(self):
        digests = [part.sha256 for each in catalogue() for part in each.files if part.sha256]

        assert len(set(digests)) == len(digests) == 83
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)

    @pytest.mark.parametrize(
        ("name", "n_parts"),
        [
            ("CIFAR10", 10), ("FashionMNIST", 10), ("SVHN", 10), ("MNIST-C", 16), ("MVTec-AD", 15),
            ("20news", 6), ("agnews", 4), ("amazon", 1), ("imdb", 1), ("yelp", 1),
        ],
    )  # fmt: skip
    def test_both_embeddings_have_the_same_files(self, name, n_parts):
        first, second = select([name])

        assert [part.name for part in first.files] == [part.name for part in second.files]
        assert len(first.files) == n_parts

    def test_embedding_determines_folder_and_number_of_features(self):
        columns = {"ResNet18": 512, "ViT": 1000, "BERT": 768, "RoBERTa": 768}

        for dataset in catalogue():
            for part in dataset.files:
                if dataset.embedding:
                    assert part.path.split("/")[0].endswith(f"_by_{dataset.embedding}"), part
                    assert part.n_features == columns[dataset.embedding], part
                else:
                    assert part.path.startswith("Classical/"), part

    def test_authors_drop_outliers_of_34_tables(self):
        tables = [each for each in catalogue() if each.kind == "table" and each.name != "mnist"]
        kept = {each.name: each.official_outliers for each in tables}

        dropped = [each.name for each in tables if kept[each.name] < each.files[0].n_outliers]

        assert (len(tables), len(dropped)) == (46, 34)
        assert (kept["satimage-2"], kept["thyroid"], kept["pima"]) == (57, 75, 257)
        assert all(kept[each.name] <= each.files[0].n_outliers for each in tables)
        others = [each for each in catalogue() if each.kind != "table"]
        assert {each.official_outliers for each in others} == {None}

    @pytest.mark.parametrize(
        ("label", "own", "dte"),
        [
            ("wine", True, True),
            ("mnist", False, True),
            ("CIFAR10 (ViT)", True, False),
            ("CIFAR10 (ResNet18)", False, True),
            ("20news (RoBERTa)", True, False),
            ("20news (BERT)", False, True),
            ("FashionMNIST (ViT)", False, False),
            ("FashionMNIST (ResNet18)", False, True),
        ],
    )
    def test_paper_columns_belong_to_their_files(self, label, own, dte):
        (dataset,) = select([label])

        for column in ("ODIM", "ALTBI-G", "ALTBI-I", "ALTBI"):
            assert dataset.is_column_of(column) is own, column
        for column in ("kNN", "DTE-NP", "DeepSVDD"):
            assert dataset.is_column_of(column) is dte, column

    def test_names_come_from_file_and_embedding(self):
        dataset, part = find_file("CV_by_ViT/MVTec-AD_metal_nut.npz")

        assert part.name == "MVTec-AD_metal_nut"
        assert (dataset.label, dataset.name) == ("MVTec-AD (ViT)", "MVTec-AD")
        assert find_file("Classical/22_magic.gamma.npz")[1].name == "22_magic.gamma"

    def test_cells_of_known_sizes_are_counted(self):
        parts = (DataFile("a", 10, 3, 1), DataFile("b", None, 3, None), DataFile("c", 2, 3, 1))

        assert Dataset("toy", "", "table", "", parts).n_cells == 36

    @pytest.mark.parametrize("file", ["wine", "../wine.npz", "/etc/passwd", ""])
    def test_file_outside_the_catalogue_raises(self, file):
        with pytest.raises(ParameterError, match="is not a file of ADBench"):
            find_file(file)


class TestSelect:
    def test_names_are_unique_in_the_papers_order(self):
        chosen = select(["20news", "wine", "glass", "wine", "20news (BERT)"])

        labels = [dataset.label for dataset in chosen]
        assert labels == ["glass", "wine", "20news (BERT)", "20news (RoBERTa)"]

    def test_label_selects_one_embedding(self):
        assert [each.label for each in select(["SVHN (ViT)"])] == ["SVHN (ViT)"]

    def test_only_unknown_names_are_reported(self):
        with pytest.raises(ParameterError, match=r"'vine' \(did you mean 'wine'.*'ALOI' .*'aloi'"):
            select(["wine", "vine", "ALOI"])

    def test_unknown_suite_raises(self):
        with pytest.raises(ParameterError, match=r"No suite is called 'big'. Expected: smoke, "):
            select(suite="big")

    def test_suites_have_their_kind_and_size(self):
        chosen = {suite: select(suite=suite) for suite in SUITES}

        assert len(chosen["smoke"]) == 6
        assert len(chosen["tables"]) == 47
        assert len(chosen["embeddings"]) == 20
        assert len(chosen["all"]) == 67
        assert {each.kind for each in chosen["small"]} == {"table"}
        assert max(each.files[0].n_rows for each in chosen["small"]) == 7603
        names = {each.name for each in chosen["small"]}
        assert {"mnist", "speech"} < names
        assert "mammography" not in names


class TestFolder:
    def test_environment_variable_sets_the_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ALTBI_ADBENCH", str(tmp_path / "there"))

        assert adbench_folder() == tmp_path / "there"

    @pytest.mark.parametrize("stated", [None, ""])
    def test_default_folder_is_shared_adbench(self, tmp_path, monkeypatch, stated):
        monkeypatch.delenv("ALTBI_ADBENCH", raising=False)
        if stated is not None:
            monkeypatch.setenv("ALTBI_ADBENCH", stated)
        (tmp_path / "checkout").mkdir()
        monkeypatch.chdir(tmp_path / "checkout")
        assert adbench_folder() is None

        (tmp_path / "shared" / "adbench").mkdir(parents=True)

        assert adbench_folder().resolve() == tmp_path / "shared" / "adbench"

    def test_one_file_makes_a_data_set_available(self, folder):
        missing = DataFile("lacking.npz", 6, 2, 2)

        assert is_available(TOY)
        assert not is_available(missing)
        assert is_available(Dataset("toy", "", "table", "", (missing, TOY)))
        assert not is_available(Dataset("toy", "", "table", "", (missing,)))

    def test_nothing_is_available_without_a_folder(self, tmp_path, monkeypatch):
        monkeypatch.delenv("ALTBI_ADBENCH", raising=False)
        (tmp_path / "alone").mkdir()
        monkeypatch.chdir(tmp_path / "alone")

        assert not is_available(TOY)
        with pytest.raises(TableError, match=r"toy: no ADBench .*Set ALTBI_ADBENCH.*toy\.npz"):
            locate(TOY)

    def test_missing_file_error_names_the_variable(self, folder):
        (folder / "toy.npz").unlink()

        with pytest.raises(TableError, match=r"toy\.npz: no such file.*set ALTBI_ADBENCH"):
            load(TOY)

    def test_folder_of_that_name_raises(self, folder):
        (folder / "toy.npz").unlink()
        (folder / "toy.npz").mkdir()

        assert not is_available(TOY)
        with pytest.raises(TableError, match=r"toy\.npz: no such file"):
            load(TOY)


class TestLoad:
    def test_values_are_floats_and_labels_integers(self, folder):
        X, y = load(TOY)

        assert (X.dtype, y.dtype) == (np.float64, np.int64)
        assert X.tolist() == np.arange(12).reshape(6, 2).tolist()
        assert y.tolist() == [0, 0, 0, 0, 1, 1]

    @pytest.mark.parametrize("kind", [np.uint8, np.bool_, np.float32])
    def test_labels_may_have_any_numeric_type(self, folder, kind):
        write_file(folder / "toy.npz", y=np.array([0, 0, 0, 0, 1, 1], dtype=kind))

        assert load(TOY)[1].tolist() == [0, 0, 0, 0, 1, 1]

    @pytest.mark.parametrize(
        ("arrays", "found"),
        [
            ({"X": np.zeros((5, 2))}, r"X of shape \(5, 2\)"),
            ({"X": np.zeros((6, 3))}, r"X of shape \(6, 3\)"),
            ({"X": np.zeros(6)}, r"X of shape \(6,\)"),
            ({"y": np.zeros(5)}, r"y of shape \(5,\)"),
            ({"y": np.zeros((6, 1))}, r"y of shape \(6, 1\)"),
            ({"y": np.array([0, 0, 0, 2, 1, 1])}, "other labels, but toy has .* labels 0 and 1"),
            ({"y": np.array([0, 0, 0, 0.5, 1, 1])}, "other labels"),
            ({"y": np.array([0, 0, 0, np.nan, 1, 1])}, "other labels"),
            ({"y": np.array([0, 0, 0, 0, 0, 1])}, "1 outliers, but toy has .* 2 outliers"),
            ({"y": np.array(list("000011"))}, "plain arrays"),
            ({"X": np.full((6, 2), "1")}, "plain arrays"),
            ({"X": np.full((6, 2), 1j)}, "plain arrays"),
        ],
    )
    def test_unexpected_shape_or_labels_raise(self, folder, arrays, found):
        write_file(folder / "toy.npz", **arrays)

        with pytest.raises(TableError, match=rf"toy\.npz: .*{found}"):
            load(TOY)

    @pytest.mark.parametrize(
        "arrays",
        [{"X": np.float64(3), "y": [1]}, {"X": np.zeros((1, 2)), "y": np.int64(1)}],
    )
    def test_scalars_raise_for_unknown_sizes(self, folder, arrays):
        write_file(folder / "toy.npz", **arrays)

        with pytest.raises(TableError, match=r"of shape \(\)"):
            load(DataFile("toy.npz", None, 2, None))

    def test_unknown_sizes_are_not_checked(self, folder):
        X, y = load(DataFile("toy.npz", None, 2, None))

        assert (X.shape, int(y.sum())) == ((6, 2), 2)
        with pytest.raises(TableError, match="some rows, 3 features, labels 0 and 1, some out"):
            load(DataFile("toy.npz", None, 3, None))

    def test_wrong_digest_raises(self, folder):
        digest = hashlib.sha256((folder / "toy.npz").read_bytes()).hexdigest()
        part = DataFile("toy.npz", 6, 2, 2, digest)
        assert load(part)[0].shape == (6, 2)

        # The same sizes and labels, but other values.
        write_file(folder / "toy.npz", X=np.arange(1, 13).reshape(6, 2))

        with pytest.raises(TableError, match=rf"sha256 .*, but toy has .*sha256 {digest[:12]}…"):
            load(part)

    def test_last_character_of_a_digest_is_checked(self, folder):
        digest = hashlib.sha256((folder / "toy.npz").read_bytes()).hexdigest()
        other = digest[:-1] + ("0" if digest[-1] != "0" else "1")

        with pytest.raises(TableError, match="sha256"):
            load(DataFile("toy.npz", 6, 2, 2, other))

    def test_impossible_shape_raises(self, folder):
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            head, {"descr": "<f8", "fortran_order": False, "shape": (10**13, 2)}
        )
        with zipfile.ZipFile(folder / "toy.npz", "w") as archive:
            archive.writestr("X.npy", head.getvalue())

        with pytest.raises(TableError, match="plain arrays X and y"):
            load(TOY)

    def test_objects_are_not_unpickled(self, folder):
        class Trap:
            def __reduce__(self):
                return (folder / "sprung").touch, ()

        write_file(folder / "toy.npz", X=np.array([[Trap(), 1]] * 6, dtype=object))

        with pytest.raises(TableError, match=r"plain arrays X and y .*allow_pickle=False"):
            load(TOY)
        assert not (folder / "sprung").exists()

    def test_plain_pickle_is_not_unpickled(self, folder, capsys):
        # Opcodes of a call of print.
        (folder / "toy.npz").write_bytes(b"\x80\x04c__builtin__\nprint\n(S'sprung'\ntR.")

        with pytest.raises(TableError, match=r"plain arrays X and y \(it is not an npz archive\)"):
            load(TOY)
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize("missing", ["X", "y"])
    def test_archive_without_rows_or_labels_raises(self, folder, missing):
        kept = {"X": np.zeros((6, 2)), "y": np.zeros(6)}
        del kept[missing]
        np.savez(folder / "toy.npz", **kept)

        with pytest.raises(TableError, match=f"plain arrays X and y .*{missing}"):
            load(TOY)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"X,y\n1,0\n"])
    def test_file_that_is_no_archive_raises(self, folder, content):
        (folder / "toy.npz").write_bytes(content)

        with pytest.raises(TableError, match=r"toy\.npz: not an ADBench file"):
            load(TOY)

    @pytest.mark.parametrize(
        "header",
        ["{'descr': '<f8', 'fortran_order': False, 'shape': (", "(10**30,)", "(1e9,)", ""],
    )
    def test_invalid_array_header_raises(self, folder, header):
        if header.startswith("("):
            header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {header}, }}"
        content = header.encode().ljust(117) + b"\n"
        with zipfile.ZipFile(folder / "toy.npz", "w") as archive:
            for name in "Xy":
                head = b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little")
                archive.writestr(f"{name}.npy", head + content if header else b"no array")

        with pytest.raises(TableError, match=r"toy\.npz: not an ADBench file"):
            load(TOY)

    def test_corrupt_compressed_archive_raises(self, folder):
        path = folder / "toy.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("X.npy", bytes(2000))
        content = bytearray(path.read_bytes())
        content[45:55] = b"\xff" * 10
        path.write_bytes(content)

        with pytest.raises(TableError, match=r"toy\.npz: not an ADBench file"):
            load(TOY)

    def test_single_array_raises(self, folder):
        with (folder / "toy.npz").open("wb") as file:
            np.save(file, np.zeros((6, 2)))

        with pytest.raises(TableError, match=r"toy\.npz: not an ADBench file"):
            load(TOY)

    @pytest.mark.slow
    def test_damaged_bytes_raise_only_table_errors(self, folder):
        write_file(folder / "toy.npz")
        content = (folder / "toy.npz").read_bytes()

        refused = 0
        for position in range(len(content)):
            damaged = bytearray(content)
            damaged[position] ^= 0xFF
            (folder / "toy.npz").write_bytes(damaged)
            try:
                load(TOY)
            except TableError:
                refused += 1

        assert refused > len(content) / 4

    def test_table_is_loaded_by_name(self, adbench):
        X, y = load_table("wine")

        assert (X.shape, int(y.sum())) == ((129, 13), 10)


class TestRealFiles:
    @pytest.mark.slow
    def test_available_files_agree_with_the_catalogue(self, adbench):
        available = [part for each in catalogue() for part in each.files if is_available(part)]

        for part in available:
            X, y = load(part)

            assert X.shape == (part.n_rows or len(X), part.n_features), part.path
            assert y.sum() == (part.n_outliers or y.sum()), part.path
            assert np.isfinite(X).all(), part.path
        assert available
