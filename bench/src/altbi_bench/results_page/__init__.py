"""The page of results: tables, statistics, diagrams and findings."""
