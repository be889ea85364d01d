# name: script: other scripts
# input: "5\r\n7 8\r\nend\r\n"
# ---
print('你好', 'привет', 'مرحبا', 'नमस्ते', '🎉', sep='\n')
