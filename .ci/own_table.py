"""Write table.csv, holdout.csv and new.csv: flats and prices, as a spreadsheet exports them."""

import random
from pathlib import Path


def number(value: float, digits: int = 1) -> str:
    """Return a number with a decimal comma."""
    return f"{value:.{digits}f}".replace(".", ",")


def line(k: int, rng: random.Random, drift: float) -> str:
    """Return one flat: an identifier, a date, sizes with gaps, a category, a price."""
    area = rng.uniform(25, 140) + drift
    rooms = max(1, round(area / 28 + rng.gauss(0, 0.6)))
    district = rng.choice(["Centre", "Harbour", "North", "Old Town"])
    age = rng.uniform(0, 90)
    premium = {"Centre": 90, "Harbour": 40, "North": -30, "Old Town": 60}[district]
    price = 3.1 * area + 12 * rooms - 0.6 * age + premium + rng.gauss(0, 25)
    shown_age = "" if rng.random() < 0.07 else number(age, 0)
    date = f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.2024"
    cells = [f"C{k:05d}", date, number(area), str(rooms), district, shown_age, number(price)]
    return ";".join(cells)


def table(n: int, seed: int, drift: float = 0.0) -> str:
    """Return n flats as a semicolon-separated table with a byte order mark."""
    rng = random.Random(seed)
    head = "customer;sold;area;rooms;district;age;price"
    return "\ufeff" + "\r\n".join([head, *(line(k, rng, drift) for k in range(n))]) + "\r\n"


Path("table.csv").write_text(table(180, 0), encoding="utf-8")
Path("holdout.csv").write_text(table(80, 2), encoding="utf-8")
Path("new.csv").write_text(table(60, 1, drift=15.0), encoding="utf-8")
