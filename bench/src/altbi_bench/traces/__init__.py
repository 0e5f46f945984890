"""Traces: metrics of a training after each step."""
