# name: sources: names of a script
# input: ""
# output: "main.py None None {} 1\n"
# ---
import sys
print(__file__[-7:], __package__, __spec__, __annotations__, len(sys.argv))
