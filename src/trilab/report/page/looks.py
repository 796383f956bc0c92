"""Which row is drawn how: never told apart by colour alone."""

from collections.abc import Sequence

from trilab.report.rows import Row

N_COLOURS = 6
N_BEST = 3


def looks(rows: Sequence[Row]) -> list[str]:
    """A CSS class a row: the baseline, a colour with its dashes, or plain.

    With more rows than colours only the three best have one: the others are told apart by their labels, and by pointing
    at them. Twins look alike, for their lines lie on each other.
    """
    found: dict[str, str] = {}
    firsts = [row for row in rows if not row.is_baseline and row.twin is None]
    for place, row in enumerate(firsts):
        has_colour = place < (N_COLOURS if len(firsts) <= N_COLOURS else N_BEST)
        found[row.name] = f"look-{place}" if has_colour else "look-plain"
    baseline = next((row.name for row in rows if row.is_baseline), None)
    if baseline is not None:
        found[baseline] = "look-baseline"
    return [found.get(row.twin or row.name, "look-plain") for row in rows]
