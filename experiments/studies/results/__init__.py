"""Results of a study: its tables and runs, from run folders or from counts in the repository.

Knows the files of a study's folder (those of a packed study: `analysis.packed`). Must
not know how a page is written.
"""
