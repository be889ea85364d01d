# name: script: a name error and its text
# input: "5\r\n7 8\r\nend\r\n"
# ---
try: undefined
except NameError as e: print(e, e.name)
try: [].push
except AttributeError as e: print(e)
