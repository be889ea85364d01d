# name: sources: coding: latin-1
# input: ""
# output: "é\n"
# ---
#!/usr/bin/python3
# coding=latin-1
print('é')
