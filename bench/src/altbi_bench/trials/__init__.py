"""Scores and sums of scores that were tried for `OutlierDetector`, and their records."""
