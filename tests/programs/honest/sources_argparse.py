# name: sources: argparse
# input: ""
# output: "3\n"
# ---
import argparse
p = argparse.ArgumentParser()
p.add_argument('--n', default=3)
print(p.parse_args().n)
