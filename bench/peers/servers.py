"""The private servers: started by private_server, and gone when this program is, however it ends."""
import os
import subprocess

HERE = os.path.dirname(os.path.realpath(__file__))
ABSENT = 77


class Server:
    def __init__(self, what):
        """Starts it; after wait() `problem` says why there is none, and `absent` whether it is not installed."""
        self.problem = None
        self.absent = False
        self.address = None
        self.pid = None
        self.pinned = None
        self.process = subprocess.Popen([os.path.join(HERE, "private_server"), what], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait(self):
        """Until it is ready."""
        line = self.process.stdout.readline().strip()
        if line:
            self.address, pid = line.rsplit(" ", 1)
            self.pid = int(pid)
        else:
            self.problem = self.process.stderr.read().strip() or "it ended without a word"
            self.absent = self.process.wait() == ABSENT

    def pin(self, cpus):
        """All of its threads and processes stay on these from now on; those that it starts later inherit that."""
        if not cpus or not self.pid or self.pinned == cpus:
            return
        for pid in [self.pid] + children_of(self.pid):
            try:
                for thread in os.listdir("/proc/%d/task" % pid):
                    os.sched_setaffinity(int(thread), cpus)
            except (FileNotFoundError, ProcessLookupError):
                pass  # a process of the server that has ended
        self.pinned = cpus

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()


def children_of(parent):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry) as stat:
                    ppid = int(stat.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if ppid == parent:
                found.append(int(entry))
    return found
