"""Traces: measures of a training after each step."""
