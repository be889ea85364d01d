# name: streams: a carriage return in a line
# input: "a\rb\nc\r\nd"
# output: "'a\\rb' 'c\\r\\nd'\n"
# ---
import sys
print(ascii(input()), ascii(sys.stdin.read()))
