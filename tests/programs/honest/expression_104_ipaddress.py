# name: expression: 104 ipaddress
# input: ""
# ---
import ipaddress
print(ipaddress.ip_network("10.0.0.0/30").num_addresses, ipaddress.ip_address("::1").is_loopback)
