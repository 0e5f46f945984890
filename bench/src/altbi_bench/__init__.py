"""The benchmark: catalogues of data sets and systems, runs as lines, tables made of lines."""
