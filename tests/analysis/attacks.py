"""What a model might write to break a page, a terminal or a reader's eye."""

import pandas as pd

ATTACK = (
    "print(1)  # </script><script>alert(1)</script><script>window.attacked = 1</script>\n"
    "x = '<img src=x onerror=alert(2)>' + '\"><svg onload=alert(3)>' + '{{ 7 * 7 }}' <!--\n"
    "# \x00 \x1b[31mred\x1b]0;title\x07 \u202e desrever \u2066 isolate \u2069 \u2028 line ]]>\n"
)
NAME = 'mini/test/<img src=x onerror="alert(4)">\u202e\x1b[2J'


def plant(folder, place: int) -> None:
    """Plant the attack as an accepted program, as a problem's name and as its prompt."""
    evals = pd.read_parquet(folder / "evals.parquet")
    names = sorted(evals["problem"].unique())
    evals.loc[evals["problem"] == names[place], ["program", "verdict"]] = [ATTACK, "ACCEPTED"]
    evals["problem"] = evals["problem"].replace(names[place], NAME)
    evals.to_parquet(folder / "evals.parquet", index=False)
    asked = [{"problem": name, "prompt": f"Add what is above {name}."} for name in names]
    asked[place] = {"problem": NAME, "prompt": ATTACK}
    pd.DataFrame(asked).to_parquet(folder / "problems.parquet")
