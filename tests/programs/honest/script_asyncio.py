# name: script: asyncio
# input: "5\r\n7 8\r\nend\r\n"
# ---
import asyncio
async def f(i): await asyncio.sleep(.001 * (3 - i)); return i
async def main():
    print(await asyncio.gather(*map(f, range(3))))
    q = asyncio.Queue(); await q.put(1); print(await q.get())
    try: await asyncio.wait_for(asyncio.sleep(9), .01)
    except asyncio.TimeoutError: print('late')
asyncio.run(main())
