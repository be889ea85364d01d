# name: streams: unicode
# input: "äöü\n"
# output: "üöä 😀 1\n"
# ---
print(input()[::-1], '😀', len('😀'))
