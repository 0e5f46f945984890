"""Detectors with the interfaces of other libraries."""
