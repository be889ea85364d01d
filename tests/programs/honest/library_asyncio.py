# name: library: asyncio
# input: ""
# output: "[0, 2, 4]\n"
# ---
import asyncio
async def double(x):
    await asyncio.sleep(0.01)
    return 2 * x
async def main(): print(await asyncio.gather(*map(double, range(3))))
asyncio.run(main())
