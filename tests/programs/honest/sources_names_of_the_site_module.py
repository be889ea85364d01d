# name: sources: names of the site module
# input: ""
# output: "True\n"
# ---
print(all(callable(f) for f in (exit, quit, copyright, credits, license, help)))
