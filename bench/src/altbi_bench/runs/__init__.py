"""Runs: jobs, their measurement, and the records of their results."""
