"""What is measured: the lines of the table, the goals, and what each peer does not guarantee."""
import os


class Peer:
    """One thing that is measured. `server` is what private_server starts; `goals` are pairs/s of holdfast to pairs/s of the peer, for
    one process and for two on one tenant. `both`: client and server on one processor as well as on two, the better one counts."""

    def __init__(self, name, title, program, arguments=(), server=None, both=False, processes=(1, 2), goals=(None, None)):
        self.name = name
        self.title = title
        self.program = program
        self.arguments = list(arguments)
        self.server = server
        self.both = both
        self.processes = processes
        self.goals = dict(zip((1, 2), goals))


HOLDFAST = "holdfast"
HOLDFAST_BESIDE = "holdfast-beside"

PEERS = [
    Peer(HOLDFAST_BESIDE, "holdfast, drained beside", "bench_processes", ["--drain", "beside"]),
    Peer(HOLDFAST, "holdfast, drained between", "bench_processes", ["--drain", "between"]),
    Peer("redis-noaof", "Redis, Lua, no AOF", "peer_redis", server="redis-noaof", both=True, goals=(150, 100)),
    Peer("redis-everysec", "Redis, Lua, AOF everysec", "peer_redis", server="redis-everysec", both=True),
    Peer("postgres-update", "PostgreSQL, conditional UPDATE", "peer_postgres", ["--how", "update"], server="postgres", both=True,
         goals=(1500, 1000)),
    Peer("postgres-async", "the same, synchronous_commit off", "peer_postgres", ["--how", "update-async"], server="postgres",
         both=True, processes=(1,)),
    Peer("postgres-rows", "PostgreSQL, lock, 1,000 rows summed", "peer_postgres", ["--how", "rows"], server="postgres",
         both=True, processes=(1,), goals=(10000, None)),
    Peer("sqlite-normal", "SQLite, WAL, NORMAL", "peer_sqlite", ["--how", "normal"], server="folder", goals=(200, 100)),
    Peer("sqlite-full", "SQLite, WAL, FULL", "peer_sqlite", ["--how", "full"], server="folder"),
    Peer("nginx", "nginx, lua_shared_dict with record", "peer_nginx", server="nginx", goals=(3, 3)),
    Peer("mutex", "robust mutex, counters alone", "peer_mutex", goals=(0.3, 0.6)),
    Peer("xadd", "bare lock xadd of the same words", "peer_xadd", goals=(1 / 6, None)),
]

# What an operator asks of a quota, and what the lines answer. None of the peers prices, keeps windows or writes receipts.
PROMISES_HEAD = ("", "a refusal touches nobody else", "one id counts once", "killed within a call", "killed while it holds",
                 "machine or server stop")
PROMISES = [
    ("holdfast", "yes", "yes", "it happened or it did not", "freed or retained at its deadline",
     "its daemon's store has what was committed; here the daemon's part is played without a store"),
    ("Redis, no AOF", "yes", "yes, as long as the record is kept", "it happened or it did not", "**held for ever**", "**all is lost**"),
    ("Redis, everysec", "yes", "yes, as long as the record is kept", "it happened or it did not", "**held for ever**",
     "**about the last second is lost**"),
    ("PostgreSQL", "yes", "yes", "it happened or it did not", "**held for ever**",
     "all is kept; with synchronous_commit off **the last commits are lost**"),
    ("SQLite, NORMAL", "yes", "yes", "it happened or it did not", "**held for ever**", "**the last commits are lost**"),
    ("SQLite, FULL", "yes", "yes", "it happened or it did not", "**held for ever**", "all is kept"),
    ("nginx", "**no**: it adds first and takes back; meanwhile another is refused",
     "**no**: two settles at once both count, and a full dictionary forgets records", "**part of it stays**", "**held for ever**",
     "**all is lost**"),
    ("robust mutex", "yes", "**no record**", "**part of it may stay, nobody knows**", "**held for ever, nobody knows**",
     "**all is lost**"),
    ("lock xadd", "**no check**", "**no record**", "**part of it stays**", "**held for ever, nobody knows**", "**all is lost**"),
]


class Line:
    """One measurement that is repeated each round."""

    def __init__(self, peer, processes, placement, client_cpus, server_cpus):
        self.peer = peer
        self.processes = processes
        self.placement = placement
        self.client_cpus = client_cpus
        self.server_cpus = server_cpus
        self.server = peer.server
        if peer.server == "nginx":
            self.server = "nginx-%d" % processes
        self.results = []  # one a round, None where it failed

    def command(self, programs, seconds, address):
        program = programs[self.peer.program]
        if self.peer.program == "bench_processes":
            return [program, "--processes", str(self.processes), "--tenants", "one", "--k", "2", "--seconds", str(seconds),
                    "--json"] + self.peer.arguments
        command = [program, "--name", self.peer.name, "--processes", str(self.processes), "--seconds", str(seconds), "--placement",
                   self.placement] + self.peer.arguments
        if self.client_cpus:
            command += ["--cpus", ",".join(map(str, self.client_cpus))]
        if address:
            command += ["--address", address]
        return command


def all_lines():
    """Every line that this machine can run, in the order of the table. With one processor there is one placement."""
    cpus = sorted(os.sched_getaffinity(0))
    first, second = cpus[0], cpus[min(1, len(cpus) - 1)]  # those that bench_processes takes
    lines = []
    for peer in PEERS:
        for processes in peer.processes:
            both = [first, second] if len(cpus) > 1 else [first]
            if peer.both:
                lines.append(Line(peer, processes, "one core", [first], [first]))
                if len(cpus) > 1:
                    lines.append(Line(peer, processes, "two cores", [first], [second]))
            elif peer.server == "nginx":
                lines.append(Line(peer, processes, "own cores", [], both if processes > 1 else [second]))
            else:
                lines.append(Line(peer, processes, "one core" if processes == 1 else "two cores", both[:processes], []))
    if len(cpus) > 1:
        # A server with a process for each client has the use of both.
        for line in lines:
            if line.peer.server == "postgres" and line.placement == "two cores" and line.processes > 1:
                line.client_cpus, line.server_cpus = [], [first, second]
    return lines
