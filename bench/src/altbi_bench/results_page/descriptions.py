"""What the page of results says about its tables."""

__all__ = ["ABOUT", "SAMPLE"]

SAMPLE = 20_000
ABOUT = {
    "main": (
        f"`altbi-bench run --suite all --rows {SAMPLE}`: every system is fitted on the same rows "
        f"without labels and scores them; of tables with more than {SAMPLE:,} rows one seeded "
        "sample, the share of outliers kept, stands for the table. Columns are standardised for "
        "all systems but ALTBI and ODIM, which scale columns themselves. A cell is the "
        "mean over three seeds ± their sample standard deviation, without ± where the seed "
        "changes nothing. "
        "PyOD's scores of the rows of the fit are those it keeps (`decision_scores_`): a row is "
        "not its own neighbour. Differences from the paper are given for its own systems on tables "
        "that are whole here (docs/reproduction.md has the others); its baselines come from "
        "another protocol (below). Precision at n is the share of outliers "
        "among as many of the highest scores as there are outliers; kNN is the distance to the "
        "32nd neighbour, DTE-NP the mean distance to 32. `altbi-bench systems` has the "
        "parameters of all. Seconds come from a machine that did other work too, and ALTBI and "
        "ODIM score the rows of the fit twice; the reference flow is in docs/systems.md. A "
        "limit of time is that of its run (`--limit`).\n\n"
        "Lines name versions, newer ones also the state of our code between versions (`altbi "
        "code`) and the processor: on another kind of machine a training takes another turn, and "
        "single runs differ (docs/reproduction.md#on-another-machine). Lines of ALTBI-G (light) "
        'before that do not name its `score_by="loss"`, which was the only way when they began.'
    ),
    "embeddings": (
        "The same for images and texts, as numbers that a trained network gives for them. The "
        "paper's own systems saw those of ViT and RoBERTa, its baselines those of ResNet18 and "
        "BERT; here all systems see both. A row is the mean over the files that are named with "
        "it: those that half of the systems with runs of the data set have begun with. No "
        "difference from the paper is given: its own systems saw files cut to 5 % of outliers "
        "(`--protocol official`), and MVTec-AD, the only one that is whole here, has "
        "23.5 %. The tables are about the systems that ran on all of these files; `altbi-bench "
        "tables --suite embeddings` also shows what others have run so far."
    ),
    "whole": (
        "`altbi-bench run --rows all`: systems whose cost grows with the rows alone, on all "
        "rows of the tables that are larger than the sample above. ALTBI learns from 200,000 "
        "rows where there are more, and scores all."
    ),
    "dte": (
        "`altbi-bench run --protocol dte`: the paper takes its 22 baselines from DTE's tables. "
        "Here 13 of them are replayed on some tables, with PyOD as it is now: files resampled "
        "to 1,000 to 50,000 rows, fitted on a bootstrap, five seeds (0 to 4 for the neighbours, "
        "0, 1, 2, 3 and 6 for the others). CBLOF is not reproduced, on wine least of all, and we "
        "do not know why: ten starts of its clustering, the default of then, do not explain it. "
        "IForest, MCD and PCA depend on libraries that have changed since."
    ),
    "deep": (
        "The paper's ten deep baselines (DTE-NP is above), written here as their papers mean "
        "them, `altbi_bench.baselines`; three more from its related work. Tables of up to "
        "10,000 rows, one seed, all other systems with the same seed on the same rows. Epochs, "
        "widths and rates are the published ones, but for ICL, whose 2,000 epochs are 100 here; "
        "GOAD's single pass is what was published. *As published* has the worst defect of the code "
        "behind the paper's numbers, not all of them (docs/baselines.md): DAGMM never learns, "
        "DeepSVDD's centre is that of another network, GOAD's centres are met while the network "
        "changes, PlanarFlow is scored without its base density, DTE-IG by an output of which its "
        "loss sees only the square, DTE-C's loss takes softmax twice. SimCLR and CSI need "
        "pictures. "
        "`altbi-bench run --systems S --seeds 1 --datasets D` runs them; `python "
        "bench/scripts/cost.py` measures the cost of all against ALTBI's in one run."
    ),
    "deep dte": (
        "As above, `altbi-bench run --protocol dte`, one seed beside the paper's numbers, "
        "which are means of five."
    ),
    "semi": (
        "`altbi-bench run --protocol semi`: fitted on 70 % of the inliers, drawn anew for each "
        "seed; the other 30 % and all outliers are scored. ALTBI is `ALTBI(keep=1)`, ALTBI-I "
        "(reference) `ALTBI.novelty()`; kNN and DTE-NP have five neighbours. The differences are "
        "from the column of ALTBI in the paper's semi-supervised tables; its baselines saw another "
        "split (DTE's first half of the inliers in file order), so theirs are not compared, and "
        "average precision is not, because it depends on the share of outliers in the test "
        "(docs/systems.md has the paper's columns and the authors' split)."
    ),
}
