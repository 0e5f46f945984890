"""Introductions of the tables on the page of results."""

__all__ = ["ABOUT", "SAMPLE"]

SAMPLE = 20_000
ABOUT = {
    "main": (
        f"`altbi-bench run --suite all --rows {SAMPLE}`: every system is fitted on the same rows "
        f"without labels and scores them. Tables with more than {SAMPLE:,} rows are replaced by "
        "one seeded sample with the same share of outliers. Columns are standardised for all "
        "systems but ALTBI and ODIM, which scale columns themselves. A number is the mean over "
        "three seeds ± their sample standard deviation; there is no ± if the seed changes "
        "nothing. For the rows of the fit, PyOD's scores are its `decision_scores_`, in which a "
        "row is not its own neighbour. Differences from the paper are given for its own systems "
        "on complete tables (docs/benchmark/reproduction.md has the others); its baselines come "
        "from another protocol (below). Precision at n is the share of outliers among the n "
        "highest scores, where n is the number of outliers. kNN is the distance to the 32nd "
        "neighbour, DTE-NP the mean distance to 32. ALTBI is `OutlierDetector()`, ALTBI-I "
        "(reference) is `ALTBI()`; `altbi-bench systems` lists the parameters of all. The machine "
        "was also used for other work while seconds were measured, and ALTBI and ODIM score the "
        "rows of the fit twice. The reference flow is in docs/benchmark/systems.md. Time limits "
        "are those of the run (`--limit`).\n\nRecords contain versions; newer ones also contain a "
        "digest of our code (`altbi code`) and the processor. Results may differ slightly between "
        "CPU architectures (docs/benchmark/reproduction.md#on-another-machine)."
    ),
    "embeddings": (
        "The same for images and texts, as embeddings of a trained network. The paper's own "
        "systems used ViT and RoBERTa, its baselines ResNet18 and BERT; here all systems use "
        "both. A row is the mean over the stated number of files. A file counts if at least half "
        "of the systems with runs on the data set have runs on it. No difference from the paper "
        "is given: its own systems used files cut to 5 % of outliers (`--protocol official`), and "
        "MVTec-AD, the only complete one here, has 23.5 %. The tables have the systems that ran "
        "on all of these files; `altbi-bench tables --suite embeddings` also shows partial "
        "results of others."
    ),
    "whole": (
        "`altbi-bench run --rows all`: systems with linear cost, on all rows of the tables that "
        "are larger than the sample above. ALTBI is fitted on at most 200,000 rows, and scores "
        "all."
    ),
    "dte": (
        "`altbi-bench run --protocol dte`: the paper's 22 baselines are from DTE's tables. Here "
        "13 of them are repeated on some tables, with the current PyOD: files resampled to 1,000 "
        "to 50,000 rows, fitted on a bootstrap, five seeds (0 to 4 for the neighbours, 0, 1, 2, 3 "
        "and 6 for the others). CBLOF is not reproduced, least of all on wine, and we do not know "
        "why: the former default of ten starts of its clustering does not explain it. IForest, "
        "MCD and PCA depend on libraries that have changed since then."
    ),
    "deep": (
        "The paper's ten deep baselines (DTE-NP is above) and three more from its related work, "
        "implemented after their papers in `altbi_bench.baselines`. Tables have up to 10,000 "
        "rows; all systems have one seed and the same rows. Epochs, layer widths and learning "
        "rates are the published ones, but ICL has 100 epochs instead of 2,000; GOAD's single "
        "epoch is the published one. *As published* has the worst defect of the code behind the "
        "paper's numbers, not all of them (docs/benchmark/baselines.md): DAGMM is not trained, "
        "DeepSVDD's centre is that of another network, GOAD's centres are averaged while the "
        "network changes, PlanarFlow is scored without its base density, DTE-IG by an output of "
        "which "
        "only the square is in the loss, and DTE-C's loss applies softmax twice. SimCLR and CSI "
        "need images. `altbi-bench run --systems S --seeds 1 --datasets D` runs them; `python "
        "bench/scripts/cost.py` measures the cost of all relative to ALTBI in one run."
    ),
    "deep dte": (
        "As above, `altbi-bench run --protocol dte`: one seed, and the paper's numbers, which are "
        "means of five."
    ),
    "semi": (
        "`altbi-bench run --protocol semi`: fitted on 70 % of the inliers, sampled for each seed; "
        "the other 30 % and all outliers are scored. ALTBI is `OutlierDetector(keep=1)`, ALTBI-I "
        "(reference) `ALTBI(schedule=Schedule(T2=90))`; kNN and DTE-NP have five neighbours. The "
        "differences are from the column of ALTBI in the paper's semi-supervised tables. Its "
        "baselines had another split (DTE's first half of the inliers in file order), so they are "
        "not compared; nor is average precision, which depends on the share of outliers in the "
        "test (docs/benchmark/systems.md has the paper's columns and the authors' split)."
    ),
}
