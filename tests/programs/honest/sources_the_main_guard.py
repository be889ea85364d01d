# name: sources: the main guard
# input: ""
# output: "__main__\n"
# ---
def main(): print(__name__)
if __name__ == '__main__': main()
