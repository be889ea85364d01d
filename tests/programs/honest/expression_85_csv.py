# name: expression: 85 csv
# input: ""
# ---
import csv
print([*csv.reader(["a,'b',\"c,d\""])], csv.Sniffer().sniff("a;b\nc;d").delimiter)
