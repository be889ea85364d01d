# name: streams: names and encodings of the streams
# input: ""
# output: "<stdin> 0 r utf-8 False False\n<stdout> 1 w utf-8 False False\n<stderr> 2 w utf-8 False False\n"
# ---
import sys
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s.name, s.fileno(), s.mode, s.encoding, s.isatty(), s.closed)
