"""From results to a table, a report in Markdown, and its place in a README."""
import datetime
import os
import re
import statistics
import subprocess
import tempfile
import time

from lines import HOLDFAST, HOLDFAST_BESIDE, PEERS, PROMISES, PROMISES_HEAD

QUIET_PERCENT = 5  # up to here a machine counts as quiet
BEGIN, END = "<!-- peers -->", "<!-- /peers -->"
PACKAGES = ("redis-server", "postgresql-15", "libsqlite3-0", "nginx", "libnginx-mod-http-lua", "libluajit-5.1-2", "libluajit2-5.1-2",
            "libhiredis0.14", "libpq5", "libc6")


class Row:
    """The medians of a line over the rounds, and how holdfast compares."""

    def __init__(self, line):
        self.line = line
        self.peer = line.peer
        self.processes = line.processes
        self.good = [result for result in line.results if result]
        self.counts = True  # of several placements the better one does
        self.ratios = {}    # holdfast's way to drain -> pairs/s of holdfast in one of the peer's

    def median(self, field):
        return statistics.median(result[field] for result in self.good)

    @property
    def pairs_per_s(self):
        return self.median("pairs_per_s")

    @property
    def mismatches(self):
        return sum(result["mismatches"] for result in self.good)

    @property
    def goal(self):
        return self.peer.goals.get(self.processes)

    @property
    def met(self):
        """Against the line with the daemon's part beside it, as the goals say; None where there is no goal or no such line."""
        ratio = self.ratios.get(HOLDFAST_BESIDE)
        return None if self.goal is None or ratio is None else ratio >= self.goal


class Summary:
    def __init__(self, lines, absent):
        self.rows = [row for row in map(Row, lines) if row.good]
        self.absent = absent
        self.failed = ["%s, %d process%s, %s" % (line.peer.title, line.processes, "es" if line.processes > 1 else "", line.placement)
                       for line in lines if None in line.results]
        for row in self.rows:
            rivals = [other for other in self.rows if other.peer is row.peer and other.processes == row.processes]
            row.counts = row is max(rivals, key=lambda rival: rival.pairs_per_s)
        for ours in (HOLDFAST_BESIDE, HOLDFAST):
            for row in self.rows:
                self.compare(row, ours)

    def compare(self, row, ours):
        """The median of the rounds' own ratios."""
        for own in self.rows:
            if own.peer.name == ours and own.processes == row.processes and not row.peer.name.startswith(HOLDFAST):
                pairs = [(a, b) for a, b in zip(own.line.results, row.line.results) if a and b]
                if pairs:
                    row.ratios[ours] = statistics.median(a["pairs_per_s"] / b["pairs_per_s"] for a, b in pairs)

    def counted(self):
        return [row for row in self.rows if row.counts]


def amount(value):
    """Three digits, and commas in what is longer."""
    if value >= 100:
        digits = max(0, len("%d" % value) - 3)
        return "{:,}".format(int(round(value / 10 ** digits)) * 10 ** digits)
    return "%.3g" % value


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return "%.3g %s" % (ns / size, unit) if ns < 1000 * size else "%d %s" % (ns / size, unit)
    return "%d ns" % ns


def goal_of(row):
    if row.goal is None:
        return ""
    if row.peer.name == "xadd":
        return "costs at most 6"
    return "%s x" % amount(row.goal)


def verdict_of(row):
    if row.met is None:
        return ""
    if row.met:
        return "met"
    ratio = row.ratios[HOLDFAST_BESIDE]
    return "not met: costs %.1f" % (1 / ratio) if row.peer.name == "xadd" else "not met: %d %% of it" % (100 * ratio / row.goal)


HEAD = ("", "processes", "placement", "pairs/s", "p50", "p99", "p99.9", "max", "x beside", "x between", "goal", "")


def cells(summary):
    for row in summary.rows:
        x = [amount(row.ratios[ours]) if ours in row.ratios else "" for ours in (HOLDFAST_BESIDE, HOLDFAST)]
        yield [row.peer.title, str(row.processes), row.line.placement + ("" if row.counts else " (slower)"), amount(row.pairs_per_s),
               duration(row.median("p50_ns")), duration(row.median("p99_ns")), duration(row.median("p999_ns")),
               duration(row.median("max_ns"))] + x + ([goal_of(row), verdict_of(row)] if row.counts else ["", ""])


def table(summary):
    """For a terminal."""
    rows = [list(HEAD)] + list(cells(summary))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    left = (0, 2, 10, 11)
    text = "\n".join("  ".join(cell.ljust(width) if i in left else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)
    return "\n".join([text] + remarks(summary))


def remarks(summary):
    said = ["%s: not measured, %s" % (peer.title, summary.absent[peer.name]) for peer in PEERS if peer.name in summary.absent]
    said += ["%s: FAILED" % what for what in summary.failed]
    said.append("mismatches, budgets against what was settled: %d" % sum(row.mismatches for row in summary.rows))
    return said


def run_text(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout.strip()
    except OSError:
        return ""


def read_first(path, pattern, otherwise):
    try:
        with open(path, errors="replace") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else otherwise


def versions():
    found = []
    for package in PACKAGES:
        version = run_text("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package)
        if version.startswith("installed "):
            found.append("%s %s" % (package, version.split(" ")[1]))
    return ", ".join(found)


def machine(build):
    """What the figures depend on."""
    virtual = " hypervisor" in read_first("/proc/cpuinfo", r"^flags\s*:(.*)$", "")
    repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    compiler = read_first(os.path.join(build, "CMakeCache.txt"), r"^CMAKE_C_COMPILER:\w+=(.*)$", "cc")
    commit = run_text("git", "-C", repository, "rev-parse", "--short=12", "HEAD")
    changed = run_text("git", "-C", repository, "status", "--porcelain", "--untracked-files=no")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": "%s, %d used%s" % (read_first("/proc/cpuinfo", r"^model name\s*:(.*)$", os.uname().machine),
                                        len(os.sched_getaffinity(0)), ", a virtual machine" if virtual else ""),
        "kernel": "%s %s" % (os.uname().sysname, os.uname().release),
        "system": read_first("/etc/os-release", r'^PRETTY_NAME="(.*)"$', "unknown"),
        "files": run_text("findmnt", "-n", "-o", "FSTYPE", "-T", tempfile.gettempdir()) or "unknown",
        "compiler": run_text(compiler, "--version").split("\n")[0],
        "versions": versions(),
        "holdfast": commit + (", with changes" if changed else "") if re.fullmatch("[0-9a-f]{12}", commit) else "unknown",
        "busy before": busy(),
    }


def busy():
    """Percent that other programs take of all processors now: looked at for a second in which this one does nothing."""
    def look():
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]  # idle, and idle that waits for a disk
    total, idle = look()
    time.sleep(1)
    total_after, idle_after = look()
    return round(100 * (1 - (idle_after - idle) / max(1, total_after - total)))


def quietness(facts):
    said = "Other programs took %d %% of the processors when it began, %d %% when it had ended" % (facts["busy before"],
                                                                                              facts["busy after"])
    loud = max(facts["busy before"], facts["busy after"]) > QUIET_PERCENT
    return said + (": **no quiet machine, so these figures are a sketch**, to be measured again." if loud else ".")


def markdown_table(head, rows):
    text = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(text + ["| " + " | ".join(row) + " |" for row in rows])


def goals_text(summary):
    """Each goal in words: met, or by how much not."""
    said = []
    for row in summary.counted():
        if row.met is not None:
            x = 1 / row.ratios[HOLDFAST_BESIDE] if row.peer.name == "xadd" else row.ratios[HOLDFAST_BESIDE]
            said.append("%s, %s: %s %s, %s" % (row.peer.title, "one process" if row.processes == 1 else "two processes, one tenant",
                                               "costs" if row.peer.name == "xadd" else "x", amount(x), verdict_of(row).split(":")[0] +
                                               ("" if row.met else " (the goal is %s)" % goal_of(row))))
    return said


def markdown(summary, facts, options, plot):
    """The report; `plot` is where the SVG lies as seen from it."""
    parts = ["%s, %s, %s, %s; files on %s; %s." % (facts["date"], facts["processor"], facts["kernel"], facts["system"], facts["files"],
                                                   facts["compiler"]),
             "Packages: %s. holdfast %s." % (facts["versions"], facts["holdfast"]),
             "%d round%s of %g s a line, all lines in turn; medians. %s" %
             (options.rounds, "s" if options.rounds > 1 else "", options.seconds, quietness(facts)),
             "![Pairs a second of holdfast and its peers](%s)" % plot,
             markdown_table(HEAD, cells(summary)),
             "x: pairs/s of holdfast in one of the peer's, the median of the rounds' own ratios; *beside*: while a process of its own does "
             "the daemon's part all the time, on the next core; *between*: the workers do it between rounds. Goals count beside, and of "
             "two placements the peer's better one. A placement is that of client and server: *one core* both on the same, *two cores* "
             "each on its own.",
             "\n".join("- " + said for said in goals_text(summary) + remarks(summary)),
             "What an operator would ask of each:",
             markdown_table(PROMISES_HEAD, PROMISES)]
    return "\n\n".join(part for part in parts if part) + "\n"


def put_into(path, text):
    """Between the markers of a file that has them."""
    with open(path) as file:
        before = file.read()
    if before.count(BEGIN) != 1 or before.count(END) != 1 or before.index(END) < before.index(BEGIN):
        raise SystemExit("run: %s has no place for the report: a line %s and after it a line %s" % (path, BEGIN, END))
    head, rest = before.split(BEGIN)
    tail = rest.split(END)[1]
    with open(path, "w") as file:
        file.write(head + BEGIN + "\n\n" + text + "\n" + END + tail)
