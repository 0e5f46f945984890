"""The benchmark of altbi: baselines, ADBench, protocols, runs, tables, statistics and figures."""

__version__ = "0.2.0.dev0"
