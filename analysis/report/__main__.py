"""`python -m analysis.report`: see `analysis.report.command`."""

from __future__ import annotations

import sys

from analysis.report.command import main
from envs.command_line import quiet_when_unread

if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
