"""Benchmarks on tables with texts, dates and missing values: systems, errors and payments."""
