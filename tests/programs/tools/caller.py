
import json, main, sys
target = getattr(main.Solution(), "f") if hasattr(main, "Solution") else main.f
result, expected = target(*json.loads(sys.argv[1])), json.loads(sys.argv[2])
if isinstance(result, dict):
    result = {str(key): value for key, value in result.items()}
elif isinstance(result, tuple):
    result = json.loads(json.dumps(result))
sys.exit(result != expected)
