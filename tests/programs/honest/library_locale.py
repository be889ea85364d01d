# name: library: locale
# input: ""
# output: "1234 True\n"
# ---
import locale
locale.setlocale(locale.LC_ALL, '')
print(locale.format_string('%d', 1234, grouping=True), locale.strcoll('a', 'b') < 0)
