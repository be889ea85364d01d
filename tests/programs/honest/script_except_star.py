# name: script: except star
# input: "5\r\n7 8\r\nend\r\n"
# ---
try: raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
except* ValueError as e: print(e.exceptions)
except* TypeError as e: print(e.exceptions)
