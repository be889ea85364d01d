# name: expression: 107 xml.etree.ElementTree
# input: ""
# ---
import xml.etree.ElementTree
print(xml.etree.ElementTree.fromstring("<a b='1'><c/></a>").attrib)
