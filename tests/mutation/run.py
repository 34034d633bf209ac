#!/usr/bin/python3
"""Takes each guard of the lock-free protocol away in turn and shows which test fails.

  run.py --check                   every text of guards.list occurs exactly once, every test is known; builds nothing
  run.py --all                     all guards
  run.py --sample N                N of those that fault.* notices, chosen by the seed: little is built for them
  run.py NAME...                   these guards

  --source FOLDER   the tree (default: the one that this script is in)
  --work FOLDER     where the copy of the tree and its build are kept (default: a new one, removed at the end)
  --build FOLDER    a configured build folder, for --check: which tests there are
  --seed N          of --sample (default: HOLDFAST_SEED, else today's)
  --every           run all tests of a guard, not only up to the first that fails
  --explore         in place of the tests of the list: these candidates (separated by commas)

A guard is noticed when one of its tests fails, dies or does not end. A copy that does not build shows nothing and is an
error, as is a test that fails without any mutation. Exit status: 0 all noticed, 1 not, 2 the list is wrong, 77 skipped.
"""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
SKIPPED = 77
PARTS = ("CMakeLists.txt", "shm", "core", "persist", "tools", "cmake", "tests", "bench")
FIELDS = {"guard", "rule", "file", "breaks", "tests", "order", "covered"}


class Wrong(Exception):
    """The list, or what it is about, is not as it should be."""


class Guard:
    def __init__(self, line):
        self.line = line
        self.fields = {}
        self.text = ""
        self.mutant = ""

    @property
    def name(self):
        return self.fields["guard"]

    @property
    def tests(self):
        return self.fields.get("tests", "").split()

    @property
    def runs(self):
        """Shown by a run, in contrast to one that only a weaker processor or the model can show."""
        return bool(self.tests)


def read_guards(path):
    """guards.list: `field: value` lines, then <<<<, the text, ====, its mutant, >>>>."""
    guards, guard, part = [], None, None
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            mark = line.rstrip("\n")
            if part is not None:
                if mark == "====" and part == "text":
                    part = "mutant"
                elif mark == ">>>>" and part == "mutant":
                    part = None
                    guard.text, guard.mutant = guard.text[:-1], guard.mutant[:-1]
                    guards.append(guard)
                    guard = None
                elif part == "text":
                    guard.text += line
                else:
                    guard.mutant += line
                continue
            if mark == "" or mark.startswith("#"):
                continue
            guard = guard or Guard(number)
            if mark == "<<<<":
                part = "text"
                continue
            field, colon, value = mark.partition(":")
            if not colon or field not in FIELDS or field in guard.fields:
                raise Wrong(f"{path}:{number}: no such field here: {mark}")
            guard.fields[field] = value.strip()
    if guard is not None or part is not None:
        raise Wrong(f"{path}: the last guard is not complete")
    return guards


def check_guard(guard, source, known):
    """What is wrong with a guard, as sentences."""
    where = f"guards.list:{guard.line}: {guard.fields.get('guard', '?')}"
    for field in ("guard", "rule", "file", "breaks"):
        if not guard.fields.get(field):
            yield f"{where}: has no '{field}'"
            return
    kinds = [kind for kind in ("tests", "order", "covered") if guard.fields.get(kind)]
    if len(kinds) != 1:
        yield f"{where}: needs one of 'tests', 'order' and 'covered', has {kinds}"
    path = os.path.join(source, guard.fields["file"])
    if not os.path.exists(path):
        yield f"{where}: there is no {guard.fields['file']}"
        return
    with open(path, encoding="utf-8") as file:
        times = file.read().count(guard.text)
    if times != 1:
        yield (f"{where}: its text occurs {times} times in {guard.fields['file']}, not once: the code has changed; write the "
               "guard as it is now, and see that its removal is still noticed")
    if guard.text == guard.mutant:
        yield f"{where}: the mutant is the text"
    for test in guard.tests:
        if known is not None and test not in known:
            yield f"{where}: there is no test {test}"


def check_list(guards, source, known):
    wrong = [sentence for guard in guards for sentence in check_guard(guard, source, known)]
    names = [guard.fields.get("guard") for guard in guards]
    wrong += [f"guards.list: {name} is there twice" for name in sorted({n for n in names if names.count(n) > 1 and n})]
    if not guards:
        wrong.append("guards.list: there is no guard in it")
    if wrong:
        raise Wrong("\n".join(wrong))


class Test:
    """One test as ctest knows it, run without ctest: a mutant may hang, and each must end soon."""

    def __init__(self, command, properties, build, most):
        self.command = command
        self.passes = None  # not known yet
        self.folder = properties.get("WORKING_DIRECTORY", build)
        self.limit = min(float(properties.get("TIMEOUT", most)), most)
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", "").split(";") if "=" in v)
        words = self.command + list(self.environment.values())
        self.targets = [os.path.relpath(w, build) for w in words if w.startswith(build + os.sep)]

    def run(self):
        """None: passed or skipped; else how it failed."""
        # Into a file: what a failed test has started, and not ended, would keep a pipe open.
        with tempfile.TemporaryFile() as said_file:
            process = subprocess.Popen(self.command, cwd=self.folder, env={**os.environ, **self.environment},
                                       stdin=subprocess.DEVNULL, stdout=said_file, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                process.wait(timeout=self.limit)
                in_time = True
            except subprocess.TimeoutExpired:
                in_time = False
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # what it started, too
                except ProcessLookupError:
                    pass
            process.wait()
            said_file.seek(0)
            output = said_file.read()
        if not in_time:
            return f"did not end in {self.limit:.0f} s"
        if process.returncode == 0:
            return None
        if process.returncode == SKIPPED:
            return SKIPPED
        said = output.decode("utf-8", "replace")
        if process.returncode < 0:
            return f"signal {-process.returncode}"
        failed = re.findall(r"^\[  FAILED  \] ([a-z_0-9]+)$", said, re.M)
        if failed:
            return failed[0]
        last = [line for line in said.strip().splitlines() if re.search(r"fail|viol|wrong|error|not ", line, re.I)]
        return (last or said.strip().splitlines() or [f"exit status {process.returncode}"])[-1].strip()[:90]


def read_tests(build, most):
    """What ctest would run, from the files that it reads: ctest itself tells no command that is not built yet."""
    word = re.compile(r'\[(=*)\[(.*?)\]\1\]|"((?:[^"\\]|\\.)*)"|([^\s()]+)', re.S)
    commands, properties = {}, {}
    for folder, _, files in os.walk(build):
        if "CTestTestfile.cmake" not in files:
            continue
        with open(os.path.join(folder, "CTestTestfile.cmake"), encoding="utf-8") as file:
            for call, said in re.findall(r"^(add_test|set_tests_properties)\((.*)\)$", file.read(), re.M):
                words = [m[1] or m[2] or m[3] for m in word.findall(said)]
                if call == "add_test":
                    commands[words[0]] = words[1:]
                else:
                    properties[words[0]] = dict(zip(words[2::2], words[3::2]))
    return {name: Test(command, properties.get(name, {}), build, most) for name, command in commands.items()}


class Bench:
    """A copy of the tree that is mutated, and its build."""

    def __init__(self, source, work, most):
        self.tree = os.path.join(work, "tree")
        self.build = os.path.join(work, "build")
        self.most = most
        self.copy(source)
        self.configure()

    def copy(self, source):
        """Only what differs, with its times: an earlier build of --work is used again."""
        for part in PARTS:
            come_from = os.path.join(source, part)
            if os.path.isdir(come_from):
                for folder, folders, files in os.walk(come_from):
                    folders[:] = [f for f in folders if f != "__pycache__"]
                    target = os.path.join(self.tree, os.path.relpath(folder, source))
                    os.makedirs(target, exist_ok=True)
                    for name in set(os.listdir(target)) - set(files) - set(folders):
                        path = os.path.join(target, name)
                        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
                    for name in files:
                        self.copy_file(os.path.join(folder, name), os.path.join(target, name))
            else:
                os.makedirs(self.tree, exist_ok=True)
                self.copy_file(come_from, os.path.join(self.tree, part))

    @staticmethod
    def copy_file(come_from, to):
        with open(come_from, "rb") as file:
            content = file.read()
        if os.path.exists(to):
            with open(to, "rb") as file:
                if file.read() == content:
                    return
        with open(to, "wb") as file:
            file.write(content)
        shutil.copymode(come_from, to)

    def call(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, "CC": "clang", "CXX": "clang++"})
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def configure(self):
        # clang: no link-time optimisation, so a mutant is one file and the links.
        code, said = self.call(["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build, "-DHOLDFAST_WERROR=OFF",
                                "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1",
                                "-DHOLDFAST_SHARED=" + os.environ.get("HOLDFAST_SHARED", "")])
        if code != 0:
            raise Wrong("the copy cannot be configured:\n" + said)
        self.tests = read_tests(self.build, self.most)

    def make(self, tests):
        targets = sorted({target for test in tests for target in self.tests[test].targets})
        jobs = os.environ.get("HOLDFAST_JOBS") or str(os.cpu_count())
        return self.call(["ninja", "-C", self.build, "-j", jobs, *targets]) if targets else (0, "")

    def write(self, guard, mutant):
        path = os.path.join(self.tree, guard.fields["file"])
        with open(path, encoding="utf-8") as file:
            content = file.read()
        text, other = (guard.text, guard.mutant) if mutant else (guard.mutant, guard.text)
        if not mutant:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.kept)
            return
        self.kept = content
        with open(path, "w", encoding="utf-8") as file:
            file.write(content.replace(text, other))


def baseline(bench, name):
    """Without any mutation it passes: else its failure would show nothing. How long it takes is the measure of hanging."""
    test = bench.tests[name]
    if test.passes is None:
        code, said = bench.make([name])
        if code != 0:
            raise Wrong(f"{name} cannot be built without any mutation:\n{said[-4000:]}")
        start = time.monotonic()
        how = test.run()
        if how not in (None, SKIPPED):
            raise Wrong(f"{name} fails without any mutation: {how}")
        test.passes = how is None
        test.limit = min(test.limit, max(15.0, 8.0 * (time.monotonic() - start)))
    return test.passes


def try_guard(bench, guard, tests, every):
    """The tests that fail without the guard, as {test: how}; None: all of them are skipped on this machine. Raises Wrong when
    the mutant does not build."""
    noticed, ran = {}, False
    for group in [tests] if every else [[name] for name in tests]:
        group = [name for name in group if baseline(bench, name)]
        if not group:
            continue
        ran = True
        bench.write(guard, True)
        try:
            code, said = bench.make(group)
            if code != 0:
                raise Wrong(f"{guard.name}: the mutant does not build, which shows nothing:\n{said[-3000:]}")
            for name in group:
                how = bench.tests[name].run()
                if how not in (None, SKIPPED):
                    noticed[name] = how
        finally:
            bench.write(guard, False)
        if noticed and not every:
            break
    return noticed if ran else None


def run_guards(guards, bench, arguments):
    candidates = arguments.explore.split(",") if arguments.explore else None
    wanted = candidates or sorted({test for guard in guards for test in guard.tests})
    unknown = [test for test in wanted if test not in bench.tests]
    if unknown:
        raise Wrong("no such tests: " + " ".join(unknown))
    missed, broken, skipped = [], [], []
    width = max(len(guard.name) for guard in guards)
    print(f"{'guard':{width}}  seconds  the test that fails without it", flush=True)
    for guard in guards:
        start = time.monotonic()
        try:
            noticed = try_guard(bench, guard, candidates or guard.tests, arguments.every or candidates)
        except Wrong as wrong:
            broken.append(guard.name)
            print(wrong, flush=True)
            continue
        if noticed is None:
            skipped.append(guard.name)
            print(f"{guard.name:{width}}  {'':7}  skipped: its tests cannot run here ({' '.join(guard.tests)})", flush=True)
            continue
        shown = "; ".join(f"{test}: {how}" for test, how in noticed.items()) or "NOTHING NOTICES IT"
        print(f"{guard.name:{width}}  {time.monotonic() - start:7.1f}  {shown}", flush=True)
        if not noticed:
            missed.append(guard.name)
    for name in missed:
        print(f"nothing notices that {name} is gone: it is unproven, or not needed. Again: tests/mutation/run.py {name}")
    print(f"totals: {len(guards)} guards removed, {len(guards) - len(missed) - len(broken) - len(skipped)} noticed, "
          f"{len(missed)} not, {len(broken)} did not build, {len(skipped)} skipped")
    return 1 if missed or broken else 0


def choose(guards, arguments):
    if arguments.names:
        chosen = [guard for guard in guards if guard.name in arguments.names]
        if len(chosen) != len(arguments.names):
            raise Wrong("no such guard: " + " ".join(set(arguments.names) - {g.name for g in chosen}))
        return chosen
    runs = [guard for guard in guards if guard.runs]
    if arguments.sample:
        seed = arguments.seed or os.environ.get("HOLDFAST_SEED") or str(int(time.time()) // 86400)
        print(f"seed {seed}: the same guards again by HOLDFAST_SEED={seed} tests/mutation/run.py --sample {arguments.sample}")
        runs = [guard for guard in runs if guard.tests[0].startswith("fault.")]  # little to build
        return sorted(random.Random(seed).sample(runs, min(arguments.sample, len(runs))), key=lambda g: g.line)
    return runs


def known_tests(build):
    done = subprocess.run(["ctest", "--test-dir", build, "-N"], stdout=subprocess.PIPE, check=True)
    return set(re.findall(r"^ *Test +#\d+: (\S+)", done.stdout.decode(), re.M))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--source", default=os.path.realpath(os.path.join(HERE, "../..")))
    parser.add_argument("--list", help=argparse.SUPPRESS)
    parser.add_argument("--work")
    parser.add_argument("--build")
    parser.add_argument("--seed")
    parser.add_argument("--most", type=float, default=240.0, help="seconds that a test may take at most")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--explore")
    arguments = parser.parse_args()
    if not (arguments.check or arguments.all or arguments.sample or arguments.names):
        parser.error("say what to do: --check, --all, --sample N or names of guards")
    try:
        guards = read_guards(arguments.list or os.path.join(arguments.source, "tests/mutation/guards.list"))
        check_list(guards, arguments.source, known_tests(arguments.build) if arguments.build else None)
        if arguments.check:
            order = sum(1 for guard in guards if guard.fields.get("order"))
            covered = sum(1 for guard in guards if guard.fields.get("covered"))
            print(f"totals: {len(guards)} guards, every text there once; {len(guards) - order - covered} shown by a test, "
                  f"{order} by order alone, {covered} covered by another guard")
            return 0
        if shutil.which("clang") is None:
            print("skipped: mutants are built by clang, which is not here")
            return SKIPPED
        chosen = choose(guards, arguments)
        with tempfile.TemporaryDirectory(prefix="holdfast-mutation-") as temporary:
            work = os.path.realpath(arguments.work) if arguments.work else temporary
            return run_guards(chosen, Bench(arguments.source, work, arguments.most), arguments)
    except Wrong as wrong:
        print(f"mutation: {wrong}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
