# name: library: asyncio with threads
# input: ""
# output: "1\n"
# ---
import asyncio, time
async def main(): print(await asyncio.to_thread(lambda: time.sleep(0.01) or 1))
asyncio.run(main())
