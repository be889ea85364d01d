# name: calls: a main guard that reads
# function: f
# input: [2]
# output: 3
# ---
def f(a): return a + 1
if __name__ == '__main__': print(f(int(input())))
