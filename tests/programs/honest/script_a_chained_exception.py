# name: script: a chained exception
# input: "5\r\n7 8\r\nend\r\n"
# ---
try: 1 / 0
except ZeroDivisionError as e: raise ValueError('x') from e
