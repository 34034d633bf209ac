"""Bars on a logarithmic scale as SVG, readable on a light and on a dark page."""
import math
from xml.sax.saxutils import escape

WIDTH, LABELS, RIGHT, TOP, ROW, BAR, FOOT = 900, 310, 90, 74, 40, 13, 44
STYLE = """
  text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .small { font-size: 11px; fill: #59636e }
  .page { fill: #ffffff } .grid { stroke: #d1d9e0 } .one { fill: #0969da } .two { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .page { fill: #0d1117 }
    .grid { stroke: #3d444d } .one { fill: #4493f8 } .two { fill: #f0883e }
  }
"""


def short(value):
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return "%.3g %s" % (value / size, unit)
    return "%.3g" % value


def text(x, y, words, kind="", anchor="start"):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, ' class="%s"' % kind if kind else "", escape(words))


def plot(summary, facts):
    rows = summary.counted()
    peers = list(dict.fromkeys(row.peer for row in rows))
    rates = [row.pairs_per_s for row in rows] or [1, 10]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    low = min(low, high - 1)
    height = TOP + ROW * len(peers) + FOOT

    def at(value):
        return LABELS + (WIDTH - LABELS - RIGHT) * (math.log10(value) - low) / (high - low)

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Pairs a second">' % (WIDTH, height),
             "<style>%s</style>" % STYLE, '<rect class="page" width="100%" height="100%" rx="6"/>',
             text(20, 28, "Reserve + settle pairs a second, logarithmic", "title"),
             '<rect class="one" x="20" y="42" width="12" height="12" rx="2"/>', text(38, 53, "one process"),
             '<rect class="two" x="130" y="42" width="12" height="12" rx="2"/>', text(148, 53, "two processes on one tenant")]
    for power in range(low, high + 1):
        x = at(10 ** power)
        parts.append('<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>' % (x, x, TOP - 6, height - FOOT + 4))
        parts.append(text(x, height - FOOT + 20, short(10 ** power), "small", "middle"))
    for number, peer in enumerate(peers):
        y = TOP + ROW * number
        parts.append(text(LABELS - 10, y + 19, peer.title, "", "end"))
        for row in rows:
            if row.peer is peer:
                top = y + (row.processes - 1) * (BAR + 2)
                parts.append('<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>' %
                             ("one" if row.processes == 1 else "two", LABELS, top, max(1, at(row.pairs_per_s) - LABELS), BAR))
                parts.append(text(at(row.pairs_per_s) + 6, top + 11, short(row.pairs_per_s), "small"))
    parts.append(text(20, height - 8, "%s; %s; %s" % (facts["date"], facts["processor"], facts["kernel"]), "small"))
    return "\n".join(parts + ["</svg>"]) + "\n"
