# name: expression: 109 configparser
# input: ""
# ---
import configparser
print(configparser.ConfigParser().sections())
