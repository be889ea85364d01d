# name: expression: 88 locale
# input: ""
# ---
import locale
print(locale.setlocale(locale.LC_ALL), locale.localeconv()["decimal_point"], locale.atof("1.5"))
