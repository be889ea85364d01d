# name: as a script: the standard library
# input: ""
# ---
import bz2, ctypes, dataclasses, datetime, decimal, fractions, hashlib, lzma, queue
import sqlite3, statistics, typing, uuid, zlib
print('ok')
