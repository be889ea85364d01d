# name: script: csv and json files
# input: "5\r\n7 8\r\nend\r\n"
# ---
import csv, json
with open('t.csv', 'w', newline='') as f: csv.writer(f).writerows([[1, 'a,b'], [2, 'c"d']])
print(open('t.csv', newline='').read(), [*csv.DictReader(open('t.csv'), ['n', 's'])])
json.dump([1], open('j', 'w')); print(json.load(open('j')))
