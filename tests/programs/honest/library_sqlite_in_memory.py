# name: library: sqlite in memory
# input: ""
# output: "(2,)\n"
# ---
import sqlite3
c = sqlite3.connect(':memory:')
print(c.execute('select 1 + 1').fetchone())
