"""Forty tables as people have them, what becomes of them, and what is said."""

from __future__ import annotations

import gzip

#: n rows of the columns a (numbers), c (categories) and y (labels).
N = 30


def lines(head: str, row, n: int = N) -> str:
    """Return a text table, ``row`` a function of the number of the row."""
    return head + "\n" + "".join(row(k) + "\n" for k in range(n))


def num(k: int) -> str:
    return f"{(k * 7919 % 101) / 10 + 0.05:.2f}"


def lab(k: int) -> str:
    return "uv"[k * 7919 % 101 > 50]


def plain(sep: str = ",") -> str:
    return lines(sep.join("acy"), lambda k: sep.join([num(k), "pqr"[k % 3], lab(k)]))


def with_(value, head: str = "x") -> str:
    return lines(f"a,{head},y", lambda k: f"{num(k)},{value(k)},{lab(k)}")


def comma(text: str) -> str:
    return text.replace(".", ",")


#: name: (content, "fitted" or "refused", what is said, the columns used or None)
TABLES: dict[str, tuple[str | bytes, str, str, str | None]] = {
    "commas": (plain(), "fitted", "", "a c"),
    "semicolons": (plain(";"), "fitted", "", "a c"),
    "tabs": (plain("\t"), "fitted", "", "a c"),
    "pipes": (plain("|"), "fitted", "", "a c"),
    "gzip": (gzip.compress(plain().encode()), "fitted", "", "a c"),
    "byte order mark": ("\ufeff" + plain(), "fitted", "", "a c"),
    "Windows line ends": (plain().replace("\n", "\r\n"), "fitted", "", "a c"),
    "blanks after commas": (plain().replace(",", ", "), "fitted", "", "a c"),
    "decimal commas": (comma(plain(";")), "fitted", "decimal commas", "a c"),
    "decimal commas, quoted": (
        lines("a,y", lambda k: f'"{comma(num(k))}",{lab(k)}'), "fitted", "decimal commas", "a"),
    "European thousands": (
        lines("a;y", lambda k: f"1.{k:03d},5;{lab(k)}"), "fitted", "separators of thousands", "a"),
    "English thousands": (
        lines("a;y", lambda k: f"1,{k:03d}.5;{lab(k)}"), "fitted", "separators of thousands", "a"),
    "1,234 and nothing else": (
        lines("a;y", lambda k: f"1,{k:03d};{lab(k)}"), "refused", "which may be", None),
    "two ways of writing": (
        lines("a;b;y", lambda k: f"{comma(num(k))};1,{k:03d}.5;{lab(k)}"),
        "refused", "in two ways", None),
    "Latin-1": (plain().replace("p", "é").encode("latin1"), "refused", "not UTF-8", None),
    "UTF-16": (plain().encode("utf-16"), "fitted", "", "a c"),
    "UTF-16 without a mark": (plain().encode("utf-16-le"), "refused", "not a text table", None),
    "ISO dates": (with_(lambda k: f"2024-01-{k % 9 + 1:02d}"), "fitted", "holds dates", "a"),
    "European dates": (with_(lambda k: f"{k % 9 + 1}.02.2024"), "fitted", "holds dates", "a"),
    "American dates": (with_(lambda k: f"2/{k % 9 + 1}/24"), "fitted", "holds dates", "a"),
    "dates as numbers": (with_(lambda k: f"{20240101 + k % 9}"), "fitted", "holds dates", "a"),
    "time stamps": (with_(lambda k: f"2024-01-02T1{k % 9}:00:00Z"), "fitted", "dates", "a"),
    "row counter": (with_(lambda k: f"{k + 1}"), "fitted", "an identifier", "a"),
    "numbers called _id": (
        with_(lambda k: f"{k * 7919 % 9973}", "user_id"), "fitted", "an identifier", "a"),
    "texts all distinct": (with_(lambda k: f"user {k}"), "fitted", "distinct texts", "a"),
    "nameless counter": (with_(lambda k: f"{k}", "Unnamed: 0"), "fitted", "identifier", "a"),
    "percent": (with_(lambda k: f"{k % 7}%"), "fitted", "0% as 0 is read", "a x"),
    "currency": (with_(lambda k: f"${k % 7}"), "fitted", "$0 as 0 is read", "a x"),
    "amounts": (
        lines("a;x;y", lambda k: f"{num(k)};1,{k:03d}.5 EUR;{lab(k)}"),
        "fitted", "1,000.5 EUR as 1000.5 is read", "a x"),
    "amounts with two readings": (
        lines("a;x;y", lambda k: f"{num(k)};1,{k % 9:03d} kg;{lab(k)}"),
        "fitted", "write plain numbers", "a x"),
    "several units": (
        with_(lambda k: f"{k % 5 + 1} {'kg' if k % 2 else 'g'}"), "fitted", "texts like", "a x"),
    "yes and no": (
        with_(lambda k: ("yes", "No")[k % 2]), "fitted", "yes or true as 1", "a x"),
    "missing numbers": (with_(lambda k: "" if k % 5 else num(k + 1)), "fitted", "median", "a x"),
    "missing categories": (
        with_(lambda k: "" if k % 5 == 0 else "pq"[k % 2]), "fitted", "commonest value", "a x"),
    "missing targets": (
        lines("a,y", lambda k: f"{num(k)},{'' if k % 9 == 0 else lab(k)}"),
        "fitted", "without a target", "a"),
    "a constant column": (with_(lambda k: "3"), "fitted", "one value only", "a"),
    "an empty column": (with_(lambda k: ""), "fitted", "has no values", "a"),
    "truth values": (with_(lambda k: str(k % 3 == 0)), "fitted", "", "a x"),
    "a text among numbers": (
        with_(lambda k: "oops" if k == 4 else num(k + 1)), "refused", "'oops' in row 5", None),
    "a row too long": (plain() + "1,p,u,4,5\n", "refused", "not a regular table", None),
    "two columns of one name": (plain().replace("a,c", "a,a"), "refused", "two columns", None),
    "no names": (lines("1,2,3", lambda k: f"{k},{k},1"), "refused", "begins with numbers", None),
    "one class": (lines("a,y", lambda k: f"{num(k)},u"), "refused", "one value only", None),
    "29 to 1": (
        lines("a,y", lambda k: f"{num(k)},{'v' if k == 3 else 'u'}"),
        "refused", "has one row", None),
    "300 columns": (
        lines(
            ",".join(f"f{j}" for j in range(300)) + ",y",
            lambda k: ",".join(num(k * 31 + j) for j in range(300)) + "," + lab(k),
        ), "fitted", "", None),
    "five rows": (lines("a,y", lambda k: f"{num(k)},{'uv'[k % 2]}", 5), "refused", "need 10", None),
}  # fmt: skip
