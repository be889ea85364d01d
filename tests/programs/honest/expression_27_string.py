# name: expression: 27 string
# input: ""
# ---
import string
print(string.ascii_lowercase, string.digits, string.punctuation, string.Template("$a").substitute(a=1))
