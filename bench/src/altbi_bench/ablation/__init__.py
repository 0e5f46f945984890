"""The paper's ablations: jobs, effects and tables."""
