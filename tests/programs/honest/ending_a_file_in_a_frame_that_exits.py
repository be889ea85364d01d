# name: ending: a file in a frame that exits
# input: ""
# output: "1\n"
# ---
import sys
def main():
    out = open(1, 'w')
    out.write('1\n')
    sys.exit(0)
main()
