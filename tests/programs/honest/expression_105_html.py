# name: expression: 105 html
# input: ""
# ---
import html
print(html.escape("<a>"), html.unescape("&eacute;"))
