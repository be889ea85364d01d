"""`python -m analysis.report`: see `analysis.report.command`."""

from __future__ import annotations

import sys

from analysis.report.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
