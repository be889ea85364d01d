# name: expression: 108 sqlite3
# input: ""
# ---
import sqlite3
print(sqlite3.connect(":memory:").execute("select 1 + 1, upper('a')").fetchall())
