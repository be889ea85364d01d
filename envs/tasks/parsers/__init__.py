"""Parsers that data sets share: fields, tests and asserts of a row, and how answers are compared.

Knows one row at a time. Must not know which data set it is from, files or the sandbox.
"""
